// Package powerloss makes the disks that a loss of power may leave of the writes of a process. It is for tests.
//
// Its types: a [Recording] has the calls of one process below one directory. It uses ptrace, so the program needs no change; the program must not write
// to a mapped file. An [Image] is a state in which a loss of power at some moment can leave the disk. A [Sync] is one call of fsync or fdatasync.
//
// A file system may do all that POSIX allows. Content that was not synced is there in full, in part (the file or the overwritten part ends at any byte)
// or with holes (a sector of 512 bytes reads as zeros or as before). A change of a directory that was not synced is there or not, independent of
// other changes. fsync and fdatasync of a file save its content and not its name; fsync of a directory saves the changes of its entries. A rename,
// and every other single call, is atomic. An image may lack any combination of these: all combinations are tried if they are few, otherwise the
// corners and a seeded sample.
//
// The model has no modes, owners and times, no disks that lose synced data, and no file systems with stronger promises, as most have.
//
// A recovery from one loss of power may meet another one. [Image.Record] records a recovery from an image, which has images again. [Recording.Kills] are
// the images after a kill of the process while the power stays on.
//
// An image consists of the inodes that the process made, so that a program that identifies files by inode finds them. Therefore the process must call
// [Rmdir] instead of removing a directory, and only one image exists at a time.
//
// The package needs Linux. Start reading at [Record].
package powerloss
