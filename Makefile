# The same checks as .ci/run, with whatever clients this machine has.
.PHONY: check test format vet static cross
check: format vet static cross test
test:
	go test -race -shuffle=on -timeout 18m ./...
format:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt would change:" $$unformatted; exit 1; fi
vet:
	go vet ./...
static:
	go tool staticcheck ./...
# What is for other systems, too: it is built and vetted for them. The tests run where the machine runs.
PORTABLE = ./config ./reaper ./locksmith ./cmd/netlock
cross:
	for system in darwin freebsd windows; do GOOS=$$system go build $(PORTABLE) && GOOS=$$system go vet $(PORTABLE) || exit 1; done
