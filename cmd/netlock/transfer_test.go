package main

import (
	"net"
	"testing"
	"time"

	"github.com/ftplockd/ftplockd/locksmith"
)

func TestInheritEndsAfterTheTimeout(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	began := time.Now()
	target := &target{settings: &settings{}, name: "ftp://a/b", until: began.Add(100 * time.Millisecond), connect: locksmith.Config{Address: silent.Addr().String(), Timeout: 20 * time.Second}}
	if _, err := inherit(t.Context(), target); statusOf(err) != exitNoServer {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}
