//go:build linux

package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// The files of the plots.
const (
	locksPlot = "bench-locks.png"
	filesPlot = "bench-files.png"
)

// dpi makes lengths of pixels: a picture of 1000 dots is 1000 of these wide.
const dpi = 72

// plot writes the plots into a directory that is there. One for which nothing was measured is not written.
func (r *report) plot(dir string) error {
	return errors.Join(
		r.plotLocks(filepath.Join(dir, locksPlot)),
		r.plotFiles(filepath.Join(dir, filesPlot)),
	)
}

// plotLocks draws lock pairs per second against connections, a panel for each file system, both axes logarithmic.
func (r *report) plotLocks(file string) error {
	var panels []*plot.Plot
	var names legend
	low, high := math.Inf(1), 0.0
	for _, g := range r.Groups {
		if g.Name != locksGroup {
			continue
		}
		p, err := g.locksPanel()
		if err != nil {
			return err
		}
		low, high = min(low, p.Y.Min), max(high, p.Y.Max)
		panels = append(panels, p)
		if len(panels) > 1 {
			continue
		}
		for i, server := range g.Servers {
			names.add(i, server, &plotter.Line{LineStyle: lookOf(server).line()}, &plotter.Scatter{GlyphStyle: lookOf(server).glyph(5)})
		}
	}
	if len(panels) == 0 || high == 0 {
		return nil
	}
	for _, p := range panels { // one scale for all
		p.Y.Min, p.Y.Max = low*0.8, high*1.25
	}
	return savePlot(file, 1080, 600, names, panels...)
}

// locksPanel draws a line for each server.
func (r *results) locksPanel() (*plot.Plot, error) {
	p := newPlot("Locks on "+r.Place, "connections, each with a lock of its own", "MKD+RMD pairs per second")
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker = plot.TickerFunc(func(_, _ float64) []plot.Tick { return r.connectionTicks() })
	p.Y.Tick.Marker = plot.TickerFunc(steps)
	for _, server := range r.Servers {
		points := r.rates(server)
		if len(points) == 0 {
			continue
		}
		line, glyphs, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		look := lookOf(server)
		line.LineStyle, glyphs.GlyphStyle = look.line(), look.glyph(5)
		p.Add(line, glyphs)
	}
	return p, nil
}

// rates returns a server's pairs per second by connections.
func (r *results) rates(server string) (points plotter.XYs) {
	for _, row := range r.Rows {
		if rounds := row.measured(server, 0); len(rounds) > 0 {
			points = append(points, plotter.XY{X: connectionsOf(row.Name), Y: median(rounds)})
		}
	}
	return points
}

// connectionsOf reads what pairsRow wrote.
func connectionsOf(row string) float64 {
	n := 0
	_, _ = fmt.Sscanf(row, "%d conn.", &n) // 0 of another row
	return float64(max(n, 1))
}

func (r *results) connectionTicks() (ticks []plot.Tick) {
	for _, row := range r.Rows {
		n := connectionsOf(row.Name)
		ticks = append(ticks, plot.Tick{Value: n, Label: fmt.Sprintf("%.0f", n)})
	}
	return ticks
}

// plotFiles draws every file row as a line on which each server stands where its rate is, as a multiple of the reference's.
func (r *report) plotFiles(file string) error {
	var names legend
	p := newPlot("Transfers", "times vsftpd's rate: further right is faster", "")
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(steps)
	rows := r.transfers()
	slices.Reverse(rows) // the first one on top
	low, high := 0.8, 1.25
	for i, server := range slices.Concat([]string{quickFiles, durableFiles}, others()) {
		points := r.ratios(server, rows)
		if len(points) == 0 {
			continue
		}
		for _, at := range points {
			low, high = min(low, at.X*0.9), max(high, at.X*1.1)
		}
		glyphs, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		glyphs.GlyphStyle = lookOf(server).glyph(5.5)
		p.Add(glyphs)
		names.add(i, server, glyphs)
	}
	if len(names.columns) == 0 {
		return nil
	}
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = low, high, -0.6, float64(len(rows))-0.4
	p.Y.Tick.Marker = plot.TickerFunc(func(_, _ float64) []plot.Tick { return rowTicks(rows) })
	return savePlot(file, 1080, 640, names, p)
}

// ratios returns where a server stands in each row.
func (r *report) ratios(server string, rows []spot) (points plotter.XYs) {
	for i, at := range rows {
		v, ok := r.median(at, server)
		if of, known := r.median(at, reference); ok && known && of > 0 && v > 0 {
			points = append(points, plotter.XY{X: v / of, Y: float64(i)})
		}
	}
	return points
}

func rowTicks(rows []spot) (ticks []plot.Tick) {
	for i, at := range rows {
		label := at.row
		if at.group == tlsGroup {
			label = "TLS, " + label
		} else if strings.HasPrefix(at.place, inMemory) {
			label += ", " + inMemory
		}
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: label})
	}
	return ticks
}

// steps are 1, 2 and 5 of each decade, for logarithmic axes.
func steps(low, high float64) (ticks []plot.Tick) {
	for decade := math.Pow10(int(math.Floor(math.Log10(low)))); decade <= high; decade *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if v := step * decade; v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: stepLabel(v)})
			}
		}
	}
	return ticks
}

func stepLabel(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%gk", math.Round(v/10)/100)
	}
	return fmt.Sprintf("%g", math.Round(v*1000)/1000)
}

// savePlot draws panels side by side, the legend below them, and writes them to a file as PNG.
func savePlot(file string, width, height vg.Length, names legend, panels ...*plot.Plot) (err error) {
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(dpi))}
	all := draw.New(canvas)
	below := names.height(all) + 16
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: 24, PadTop: 8, PadLeft: 8, PadRight: 20, PadBottom: 8}
	for i, at := range plot.Align([][]*plot.Plot{panels}, tiles, draw.Crop(all, 0, 0, below, 0))[0] {
		panels[i].Draw(at)
	}
	names.draw(draw.Crop(all, 0, 0, 8, below-height))
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = canvas.WriteTo(f)
	return err
}
