//go:build linux

package main

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The files of the plots.
const (
	locksPlot = "bench-locks.png"
	filesPlot = "bench-files.png"
)

// picture is a plot that becomes wide enough for its points, with a name for each server's.
type picture struct {
	*plot.Plot
	names  []string // of the servers, in the order of the legend
	points map[string]plotter.XYs
}

func newPicture(title, below, beside string, names ...string) *picture {
	p := &picture{plot.New(), names, make(map[string]plotter.XYs)}
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, below, beside
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, plot.TickerFunc(steps)
	p.Legend.Top, p.Legend.Padding = true, vg.Points(3)
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.X.Tick.Label, &p.Y.Label.TextStyle, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	p.Add(plotter.NewGrid())
	return p
}

// point adds a point of a server, unless there is no such figure.
func (p *picture) point(server string, x, y float64) {
	if !math.IsNaN(x + y) {
		p.points[server] = append(p.points[server], plotter.XY{X: x, Y: y})
	}
}

// draw adds the points, with lines between them if that is wanted. Lines of others are dashed.
func (p *picture) draw(lines bool) error {
	for i, name := range p.names {
		if len(p.points[name]) == 0 {
			continue
		}
		line, glyphs, err := plotter.NewLinePoints(p.points[name])
		if err != nil {
			return err
		}
		color := plotutil.DarkColors[i%len(plotutil.DarkColors)]
		glyphs.GlyphStyle = draw.GlyphStyle{Color: color, Radius: vg.Points(4), Shape: plotutil.Shape(i)}
		line.LineStyle = draw.LineStyle{Color: color, Width: vg.Points(2)}
		if !strings.HasPrefix(name, ours) {
			line.Dashes = plotutil.Dashes(1)
		}
		if lines {
			p.Add(line)
		}
		p.Add(glyphs)
		p.Legend.Add(name, glyphs)
	}
	return nil
}

// plotLocks draws lock pairs per second against connections.
func (r *report) plotLocks(file string) error {
	var names []string
	for _, in := range allModes() {
		names = append(names, inMode(ours, in))
	}
	p := newPicture("Locks", "connections, each with a lock of its own", "MKD+RMD pairs per second", append(names, others()...)...)
	var ticks plot.ConstantTicks
	for _, row := range r.rows {
		if row.connections == 0 {
			continue
		}
		x := float64(row.connections)
		p.point(inMode(ours, row.mode), x, row.median(ours))
		if len(ticks) > 0 && ticks[len(ticks)-1].Value == x {
			continue // the others have the same figures in each mode of ours
		}
		ticks = append(ticks, plot.Tick{Value: x, Label: fmt.Sprint(row.connections)})
		for _, server := range others() {
			p.point(server, x, row.median(server))
		}
	}
	if len(ticks) == 0 {
		return nil
	}
	err := p.draw(true)
	p.X.Tick.Marker = ticks
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(steps)
	p.Y.Max *= 4 // room for the legend
	return errors.Join(err, p.Save(10*vg.Inch, 6*vg.Inch, file))
}

// plotFiles draws where each server stands in each row of files, as a multiple of vsftpd.
func (r *report) plotFiles(file string) error {
	p := newPicture("Transfers", "times vsftpd's rate: further right is faster", "", append([]string{ours}, others()...)...)
	var names []string
	for _, row := range slices.Backward(r.rows) { // the first one on top
		if !row.file {
			continue
		}
		for _, server := range p.names {
			p.point(server, row.ratio(server, vsftpd), float64(len(names)))
		}
		names = append(names, row.name)
	}
	if len(p.points) == 0 {
		return nil
	}
	err := p.draw(false)
	p.NominalY(names...)
	p.X.Min, p.X.Max, p.Y.Max = p.X.Min*0.9, p.X.Max*1.1, p.Y.Max+3
	return errors.Join(err, p.Save(10*vg.Inch, 6*vg.Inch, file))
}

// steps are 1, 2 and 5 of each decade, for logarithmic axes.
func steps(low, high float64) (ticks []plot.Tick) {
	for decade := math.Pow10(int(math.Floor(math.Log10(low)))); decade <= high; decade *= 10 {
		for _, step := range []float64{1, 2, 5} {
			if v := step * decade; v >= low && v <= high {
				ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", math.Round(v*1000)/1000)})
			}
		}
	}
	return ticks
}
