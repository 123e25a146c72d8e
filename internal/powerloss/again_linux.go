package powerloss

import (
	"iter"
	"os/exec"
	"slices"
)

// Kills yields what the disk shows when the process is killed at any moment while the power stays on: all that it did, of which
// nothing need last yet. One of them is to be looked at before the next one is asked for.
func (r *Recording) Kills() iter.Seq[*Image] {
	return func(yield func(*Image) bool) {
		d := r.begin.clone()
		for moment := r.from; moment <= len(r.events); moment++ {
			if moment > r.from {
				e := r.events[moment-1]
				d.change(e.entries)
				if e.data != nil {
					d.files[e.data.file] = e.data.content
				}
				if e.sync != nil {
					continue // less can be lost than the moment before
				}
			}
			image := &Image{
				Said: r.saidUntil(moment), Lost: "nothing yet", recording: r, disk: d.clone(),
				events: slices.Clone(r.events[:moment]),
			}
			if !yield(image) {
				return
			}
		}
	}
}

// Record restores the image and records what a command does with it, as [Record] does: such as a server that starts
// again. What had been said stays said. The images of that recording are what a further loss of power leaves, at any moment from the
// start of the command on: what one loss of power has left of the disk lasts, what a kill has left may be lost still.
func (i *Image) Record(cmd *exec.Cmd) (*Recording, error) {
	if err := i.Restore(); err != nil {
		return nil, err
	}
	r := &recorder{Recording: Recording{
		root: i.recording.root, attic: i.recording.attic, top: i.recording.top, dirs: i.recording.dirs,
		begin: i.recording.begin, events: i.events, from: len(i.events),
	}}
	var err error
	if r.now, err = r.look(); err != nil {
		return nil, err
	}
	if i.events == nil {
		r.begin = r.now.clone()
		for _, text := range i.Said {
			r.events = append(r.events, event{said: text})
		}
		r.from = len(r.events)
	}
	return r.run(cmd)
}

// change makes one step in the directories.
func (d disk) change(step []entry) {
	for _, c := range step {
		if d.dirs[c.dir] == nil {
			d.dirs[c.dir] = make(map[string]uint64)
		}
		if c.to == 0 {
			delete(d.dirs[c.dir], c.name)
		} else {
			d.dirs[c.dir][c.name] = c.to
		}
	}
}
