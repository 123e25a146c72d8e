package powerloss

import (
	"iter"
	"os/exec"
	"slices"
)

// Kills yields the disk after a kill of the process at any moment while the power stays on: it has all changes, synced or not. Use an image before
// taking the next one.
func (r *Recording) Kills() iter.Seq[*Image] {
	return func(yield func(*Image) bool) {
		d := r.initial.clone()
		for moment := r.firstEvent; moment <= len(r.events); moment++ {
			if moment > r.firstEvent {
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
				Notes: r.notesBefore(moment), Lost: "nothing yet", recording: r, disk: d.clone(),
				events: slices.Clone(r.events[:moment]),
			}
			if !yield(image) {
				return
			}
		}
	}
}

// Record restores the image and records a command like [Record], for example a server that starts again. The notes before it stay. The images of that
// recording are those of a further loss of power after the start of the command. The state after a loss of power is durable; the state after a kill
// may still be lost.
func (i *Image) Record(cmd *exec.Cmd) (*Recording, error) {
	if err := i.Restore(); err != nil {
		return nil, err
	}
	r := &recorder{Recording: Recording{
		root: i.recording.root, attic: i.recording.attic, rootInode: i.recording.rootInode, dirs: i.recording.dirs,
		initial: i.recording.initial, events: i.events, firstEvent: len(i.events),
	}}
	var err error
	if r.now, err = r.scan(); err != nil {
		return nil, err
	}
	if i.events == nil {
		r.initial = r.now.clone()
		for _, text := range i.Notes {
			r.events = append(r.events, event{note: text})
		}
		r.firstEvent = len(r.events)
	}
	return r.run(cmd)
}

// change applies one step to the directories.
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
