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
# The client side is for these systems, too.
cross:
	for system in windows darwin; do GOOS=$$system go vet ./cmd/netlock ./locksmith && GOOS=$$system go build -o /dev/null ./cmd/netlock && GOOS=$$system go build ./locksmith || exit 1; done
