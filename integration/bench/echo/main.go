// Command echo answers every line with the same line, "200 " before it. It is what a control connection costs with no
// server behind it, and the measure of what integration/bench finds.
//
//	echo
//
// It listens on a free port of 127.0.0.1, prints the address on a line, greets each connection with a line, and ends
// when its standard input does.
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "echo:", err)
		os.Exit(1)
	}
}

func run() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	var serving sync.WaitGroup
	serving.Go(func() { serve(l) })
	_, err = io.Copy(io.Discard, os.Stdin)
	l.Close()
	serving.Wait()
	return err
}

// serve returns when the listener is closed. Connections that stand then end with the process.
func serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go echo(conn)
	}
}

func echo(conn net.Conn) {
	defer conn.Close()
	if _, err := io.WriteString(conn, "220 echo\r\n"); err != nil {
		return
	}
	lines := bufio.NewReaderSize(conn, 512)
	answer := []byte("200 ")
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return
		}
		answer = append(answer[:4], line...)
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}
