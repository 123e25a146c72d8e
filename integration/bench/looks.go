//go:build linux

package main

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	plottext "gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// look is how a server is drawn in all plots. Servers differ in the shape of their points as well as in colour, and in
// how dark they are, for those who see or print no colours. Ours are blue.
type look struct {
	color  color.RGBA
	shape  draw.GlyphDrawer
	width  vg.Length
	dashes []vg.Length
}

func lookOf(server string) look {
	switch server {
	case bareLocks, quickFiles:
		return look{color: rgb(0x08306b), shape: corners(24, 0, true), width: 3}
	case durableLocks:
		return look{color: rgb(0x2f8fd8), shape: corners(4, math.Pi/4, true), width: 3}
	case realDirectories:
		return look{color: rgb(0x08306b), shape: corners(24, 0, false), width: 2, dashes: []vg.Length{7, 3}}
	case durableBoth, durableFiles:
		return look{color: rgb(0x2f8fd8), shape: corners(4, math.Pi/4, false), width: 2, dashes: []vg.Length{7, 3}}
	case "vsftpd":
		return look{color: rgb(0xa50f15), shape: corners(3, math.Pi/2, true), width: 1.5}
	case "proftpd":
		return look{color: rgb(0xe6761a), shape: corners(3, -math.Pi/2, false), width: 1.5}
	case "pure-ftpd":
		return look{color: rgb(0x1b7837), shape: strokes(2, math.Pi/4), width: 1.5}
	case bareName:
		return look{color: rgb(0x8c8c8c), shape: strokes(2, 0), width: 1.5}
	}
	return look{shape: shape{}, color: rgb(0x000000), width: 1.5, dashes: []vg.Length{2, 3}} // the limit
}

func (l look) line() draw.LineStyle {
	return draw.LineStyle{Color: l.color, Width: l.width, Dashes: l.dashes}
}

func (l look) glyph(radius vg.Length) draw.GlyphStyle {
	return draw.GlyphStyle{Color: l.color, Radius: radius, Shape: l.shape}
}

func rgb(hex uint32) color.RGBA {
	return color.RGBA{R: uint8(hex >> 16), G: uint8(hex >> 8), B: uint8(hex), A: 255}
}

// shape is a draw.GlyphDrawer of lines within a circle of radius 1. Those of the library are too thin to tell apart.
type shape struct {
	paths          [][]vg.Point
	closed, filled bool
}

var _ draw.GlyphDrawer = shape{}

// corners is a regular polygon whose first corner lies in a direction; with many corners it is a circle.
func corners(n int, first float64, filled bool) shape {
	var path []vg.Point
	for i := range n {
		path = append(path, direction(first+2*math.Pi*float64(i)/float64(n)))
	}
	return shape{paths: [][]vg.Point{path}, closed: true, filled: filled}
}

// strokes are lines through the middle, evenly spread.
func strokes(n int, first float64) (s shape) {
	for i := range n {
		angle := first + math.Pi*float64(i)/float64(n)
		s.paths = append(s.paths, []vg.Point{direction(angle), direction(angle + math.Pi)})
	}
	return s
}

func direction(angle float64) vg.Point {
	return vg.Point{X: vg.Length(math.Cos(angle)), Y: vg.Length(math.Sin(angle))}
}

// DrawGlyph draws the shape around a point.
func (s shape) DrawGlyph(c *draw.Canvas, style draw.GlyphStyle, at vg.Point) {
	c.SetLineStyle(draw.LineStyle{Color: style.Color, Width: 2})
	for _, points := range s.paths {
		var path vg.Path
		for i, p := range points {
			if p = at.Add(p.Scale(style.Radius)); i == 0 {
				path.Move(p)
			} else {
				path.Line(p)
			}
		}
		if s.closed {
			path.Close()
		}
		if s.filled {
			c.Fill(path)
		}
		c.Stroke(path)
	}
}

func newPlot(title, below, beside string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, below, beside
	p.Title.Padding = 8
	written(&p.Title.TextStyle, 17)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		written(&a.Label.TextStyle, 14)
		written(&a.Tick.Label, 13)
		a.Label.Padding = 6
	}
	p.Add(lightGrid())
	return p
}

// written sets how a text is written.
func written(style *plottext.Style, size vg.Length) {
	style.Font.Variant, style.Font.Size = "Sans", size
}

func lightGrid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Horizontal.Color, g.Vertical.Color = rgb(0xdddddd), rgb(0xdddddd)
	return g
}

// legend says which server is which, in columns below the plots.
type legend struct{ columns []plot.Legend }

// legendRows is how many servers stand in a column.
const legendRows = 4

func (l *legend) add(i int, server string, marks ...plot.Thumbnailer) {
	if i/legendRows >= len(l.columns) {
		column := plot.NewLegend()
		column.Left, column.Top, column.ThumbnailWidth, column.Padding = true, true, 40, 3
		written(&column.TextStyle, 13)
		l.columns = append(l.columns, column)
	}
	l.columns[len(l.columns)-1].Add(server, marks...)
}

// height is what the legend needs.
func (l *legend) height(c draw.Canvas) (h vg.Length) {
	for _, column := range l.columns {
		h = max(h, column.Rectangle(c).Size().Y)
	}
	return h
}

// draw draws the columns side by side, in the middle.
func (l *legend) draw(c draw.Canvas) {
	const gap = 40
	width := vg.Length(-gap)
	for _, column := range l.columns {
		width += column.Rectangle(c).Size().X + gap
	}
	left := (c.Size().X - width) / 2
	for _, column := range l.columns {
		column.Draw(draw.Crop(c, left, 0, 0, 0))
		left += column.Rectangle(c).Size().X + gap
	}
}
