# The same checks as .ci/run, with whatever clients this machine has.
.PHONY: check test format vet static
check: format vet static test
test:
	go test -race -shuffle=on -timeout 18m ./...
format:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt would change:" $$unformatted; exit 1; fi
vet:
	go vet ./...
static:
	go tool staticcheck ./...
