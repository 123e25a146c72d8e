package powerloss

import (
	"crypto/sha256"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Options select the images.
type Options struct {
	Seed uint64
	// Most limits the images of one moment. If more are possible, they are the corners and a sample.
	Most int
	// Twice is the number of starts of each kind that a Play records, to try another loss of power.
	Twice int
	// Without reports whether a sync has no effect, as if the program lacked it; nil: each has one.
	Without func(Sync) bool
}

// Image is one state that a loss of power can leave.
type Image struct {
	Notes []string // the notes of the process until then
	Lost  string   // a description of the lost changes

	recording *Recording
	disk      disk
	events    []event // of a kill: the changes that may still be lost
}

// Syncs returns every sync of the process, in order.
func (r *Recording) Syncs() []Sync {
	var all []Sync
	for _, e := range r.events[r.firstEvent:] {
		if e.sync != nil {
			all = append(all, e.sync.Sync)
		}
	}
	return all
}

// notesBefore returns the notes of the process before an event.
func (r *Recording) notesBefore(moment int) []string {
	var all []string
	for _, e := range r.events[:moment] {
		if e.note != "" {
			all = append(all, e.note)
		}
	}
	return all
}

// Images yields the states in which a loss of power at any moment can leave the disk. Equal states differ in their notes. Use an image before taking the
// next one.
func (r *Recording) Images(o Options) iter.Seq[*Image] {
	return func(yield func(*Image) bool) {
		seen := make(map[string]bool)
		random := rand.New(rand.NewPCG(o.Seed, 1))
		for moment := r.firstEvent; moment <= len(r.events); moment++ {
			if moment > r.firstEvent && r.events[moment-1].sync != nil {
				continue // less can be lost than the moment before
			}
			m := r.momentAt(moment, o, random)
			said := r.notesBefore(moment)
			for choice := range m.choices(o.Most, random) {
				image := m.image(choice)
				key := fmt.Sprint(len(said), " ", image.disk.sum(r.rootInode))
				if seen[key] {
					continue
				}
				seen[key] = true
				image.recording, image.Notes = r, said
				if !yield(image) {
					return
				}
			}
		}
	}
}

// moment has the changes that may be lost at an event of a recording.
type moment struct {
	r         *Recording
	events    []event
	unsynced  []int               // the numbers of the changes of directories that may be lost
	synced    []bool              // by event: its change of a directory is synced
	uncertain []uint64            // files with uncertain content
	variants  map[uint64][][]byte // the possible contents of these
	content   map[uint64][]byte   // the content of the others
}

func (r *Recording) momentAt(at int, o Options, random *rand.Rand) *moment {
	m := &moment{r: r, events: r.events[:at], synced: make([]bool, at), variants: make(map[uint64][][]byte), content: maps.Clone(r.initial.files)}
	pending := make(map[uint64][][]byte)
	for i, e := range m.events {
		switch {
		case e.data != nil:
			pending[e.data.file] = append(pending[e.data.file], e.data.content)
		case e.sync != nil && (i < r.firstEvent || o.Without == nil || !o.Without(e.sync.Sync)):
			if all := pending[e.sync.inode]; len(all) > 0 {
				m.content[e.sync.inode] = all[len(all)-1]
				delete(pending, e.sync.inode)
			}
			for j, earlier := range m.events[:i] {
				if slices.ContainsFunc(earlier.entries, func(c entry) bool { return c.dir == e.sync.inode }) {
					m.synced[j] = true
				}
			}
		}
	}
	for i, e := range m.events {
		if len(e.entries) > 0 && !m.synced[i] {
			m.unsynced = append(m.unsynced, i)
		}
	}
	for _, file := range slices.Sorted(maps.Keys(pending)) {
		m.uncertain = append(m.uncertain, file)
		m.variants[file] = variants(m.content[file], pending[file], random)
	}
	return m
}

// choices yields for each unsynced change 0 (lost) or 1, then for each uncertain file the number of its variant.
func (m *moment) choices(most int, random *rand.Rand) iter.Seq[[]int] {
	sizes := make([]int, len(m.unsynced), len(m.unsynced)+len(m.uncertain))
	for i := range sizes {
		sizes[i] = 2
	}
	for _, file := range m.uncertain {
		sizes = append(sizes, len(m.variants[file]))
	}
	product := 1
	for _, n := range sizes {
		if product *= n; product > most {
			return sample(sizes, most, random)
		}
	}
	return every(sizes)
}

func every(sizes []int) iter.Seq[[]int] {
	return func(yield func([]int) bool) {
		choice := make([]int, len(sizes))
		for {
			if !yield(choice) {
				return
			}
			i := 0
			for ; i < len(sizes); i++ {
				if choice[i]++; choice[i] < sizes[i] {
					break
				}
				choice[i] = 0
			}
			if i == len(sizes) {
				return
			}
		}
	}
}

// sample yields the corners (all lost, nothing lost, one thing different from that), then others at random.
func sample(sizes []int, most int, random *rand.Rand) iter.Seq[[]int] {
	lost, kept := make([]int, len(sizes)), make([]int, len(sizes))
	for i, n := range sizes {
		kept[i] = n - 1
	}
	corners := [][]int{lost, kept}
	for i, n := range sizes {
		for v := range n {
			for _, corner := range [][]int{kept, lost} {
				other := slices.Clone(corner)
				other[i] = v
				corners = append(corners, other)
			}
		}
	}
	if len(corners) > most {
		random.Shuffle(len(corners)-2, func(i, j int) { corners[i+2], corners[j+2] = corners[j+2], corners[i+2] })
	}
	return func(yield func([]int) bool) {
		for i := range most {
			var choice []int
			if i < len(corners) && i < max(2, most*2/3) {
				choice = corners[i]
			} else {
				choice = make([]int, len(sizes))
				for j, n := range sizes {
					choice[j] = random.IntN(n)
				}
			}
			if !yield(choice) {
				return
			}
		}
	}
}

func (m *moment) image(choice []int) *Image {
	d := m.r.initial.clone()
	var lost []string
	next := 0
	for i, e := range m.events {
		if len(e.entries) > 0 && !m.synced[i] {
			next++
			if choice[next-1] == 0 {
				lost = append(lost, describe(e.entries))
				continue
			}
		}
		d.change(e.entries)
	}
	d.files = maps.Clone(m.content)
	for i, file := range m.uncertain {
		v := choice[len(m.unsynced)+i]
		d.files[file] = m.variants[file][v]
		if last := m.variants[file][len(m.variants[file])-1]; v < len(m.variants[file])-1 {
			lost = append(lost, fmt.Sprintf("file %d: %d bytes in place of %d, %d of them zeros", file, len(d.files[file]), len(last),
				strings.Count(string(d.files[file]), "\x00")))
		}
	}
	return &Image{disk: d, Lost: fmt.Sprintf("%d events; lost: %s", len(m.events), strings.Join(lost, "; "))}
}

func describe(step []entry) string {
	var parts []string
	for _, c := range step {
		parts = append(parts, fmt.Sprintf("%s=%d", c.name, c.to))
	}
	return strings.Join(parts, ",")
}

// sum returns a checksum of the tree below dir.
func (d disk) sum(dir uint64) string {
	h := sha256.New()
	d.write(h, dir)
	return string(h.Sum(nil))
}

func (d disk) write(w io.Writer, dir uint64) {
	for _, name := range slices.Sorted(maps.Keys(d.dirs[dir])) {
		inode := d.dirs[dir][name]
		fmt.Fprintf(w, "%q %d %d\n", name, inode, len(d.files[inode]))
		_, _ = w.Write(d.files[inode])
		d.write(w, inode)
	}
	fmt.Fprintln(w, "end")
}

// Restore brings the disk into the state of the image.
func (i *Image) Restore() error {
	r := i.recording
	for _, place := range []string{r.root, r.attic} {
		if err := r.clear(place); err != nil {
			return err
		}
	}
	return i.fill(r.root, r.rootInode)
}

// clear empties a directory: it moves the directories of the recording to the attic, and removes the rest.
func (r *Recording) clear(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		path := filepath.Join(dir, e.Name())
		if !e.IsDir() {
			if dir != r.attic {
				err = os.Remove(path)
			}
		} else if err = r.clear(path); err == nil {
			err = r.shelve(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *Recording) shelve(dir string) error {
	inode, err := inodeOf(dir)
	if err != nil {
		return err
	}
	if !r.dirs[inode] {
		return os.Remove(dir)
	}
	if to := shelf(r.attic, 'd', inode); to != dir {
		return os.Rename(dir, to)
	}
	return nil
}

func (i *Image) fill(path string, dir uint64) error {
	for _, name := range slices.Sorted(maps.Keys(i.disk.dirs[dir])) {
		inode, to := i.disk.dirs[dir][name], filepath.Join(path, name)
		file := shelf(i.recording.attic, 'f', inode)
		_, err := os.Lstat(file)
		if err == nil {
			if err = os.WriteFile(file, i.disk.files[inode], 0o600); err == nil {
				err = os.Link(file, to)
			}
		} else if err = os.Rename(shelf(i.recording.attic, 'd', inode), to); err == nil {
			err = i.fill(to, inode)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
