package driver

import "testing"

func TestADirectoryThatPreparedChangesNeedStays(t *testing.T) {
	s, _ := startStaged(t)
	c := s.as("phoneacc")
	c.want("TYPE I", "200 *")
	c.want("MKD /locks/x", "257 *")
	c.want("MKD /data/x/new", "257 *")
	c.upload("STOR /data/x/new/f", "new")
	other := s.as("other")
	for _, who := range []*conn{c, other} {
		who.want("RMD /data/x/new", "550 /data/x/new: *")
	}
	c.want("DELE /data/x/new/f", "250 *")
	c.want("RMD /data/x/new", "550 /data/x/new: changes that wait for the release of a lock lie below it")
	c.want("RMD /locks/x", "250 *")
	c.want("RMD /data/x/new", "550 *") // guarded by the lock, held by nobody
	c.play(`
		C: MKD /locks/x
		S: 257 *
		C: RMD /data/x/new
		S: 250 *`)
}
