// Package powerloss finds out what a loss of power can leave of what a process wrote. It is for tests.
//
// Its types: a [Recording] is what one process did to the files and directories below one directory, traced call by
// call (ptrace, so that nothing in the program has to know of it; it must not store into a map of a file); an [Image] is one state in which a power
// failure at some moment of it can leave the disk; a [Sync] is a call that made something last.
//
// What a file system may do, as far as POSIX promises nothing else: content that was not synced is there in full, in part
// (the file, or what was written over what it had, ends at any byte) or with holes (any sector of 512 bytes is missing and reads
// as zeros, or as before); a change of a directory that was not synced is there or not, whatever became of others before or after it. fsync and fdatasync of a file make
// its content last and not its name; fsync of a directory makes the changes of its entries last. A rename, and every
// other single call, is atomic. What an image lacks may be any combination of these: few of them are tried all, of many
// the corners and a seeded sample.
//
// What is not modelled: modes, owners and times; a disk that lies about what it has synced; and file systems that promise
// more than POSIX, as most do.
//
// What recovers from one loss of power may meet another. [Image.Record] records a recovery from an image, and what it yields are images again;
// [Recording.Kills] are the images to recover from when the process ends and the power stays on.
//
// Images are made in place, of the very inodes that the process made, so that a program that knows its directories and
// files again by number takes them for what they were. So the process must not remove a directory, but call [Rmdir];
// and one image is looked at at a time.
//
// The package needs Linux. Start reading at [Record].
package powerloss
