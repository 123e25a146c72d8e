# The same checks as .ci/run, with whatever clients this machine has.
.PHONY: check test format vet static cross deb image release
check: format vet static cross test
test:
	go test -race -shuffle=on -timeout 18m ./...
format:
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt would change:" $$unformatted; exit 1; fi
vet:
	go vet ./...
static:
	go tool staticcheck ./...
# All of it builds for other systems, too, and so do the tests but those of internal/files and integration.
cross:
	for system in darwin freebsd windows; do GOOS=$$system go build ./... && GOOS=$$system go vet $$(GOOS=$$system go list ./... | grep -vE '/(files|integration)$$') || exit 1; done
# A package for Debian and Ubuntu, and an image for containers: in dist. ARCH=arm64 is for another machine than this one.
deb:
	packaging/deb
image:
	packaging/image
# What a release has, in dist: packages and images for amd64 and arm64, the notes and the checksums.
release:
	packaging/release
