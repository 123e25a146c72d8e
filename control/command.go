package control

import (
	"bytes"
	"strings"
)

// Command is one complete line from the client.
type Command struct {
	// Verb is the part before the first space, in upper case (RFC 959 section 5.3). Never empty.
	Verb string
	// Param is what stands after the first space: a string of bytes in no particular
	// encoding, further leading spaces and trailing ones included. Without NUL, CR or LF.
	Param string
	// Line is the whole line as it was sent, without its end and leading Telnet sequences.
	Line string
}

// parseCommand makes a command of a line without NUL, CR and LF.
func parseCommand(line []byte) Command {
	text := string(line)
	verb, param, _ := strings.Cut(text, " ")
	return Command{Verb: strings.ToUpper(verb), Param: param, Line: text}
}

// Telnet's bytes (RFC 854), as far as a control connection meets them.
const (
	telnetIAC  = 255
	telnetDont = 254
	telnetWill = 251
	telnetGA   = 249
	telnetDM   = 242
	telnetNOP  = 241
)

// skipTelnet returns the line without the Telnet sequences that it begins with: clients
// send IAC IP and a data mark before ABOR and STAT (RFC 959 section 4.1.3), some of them
// the data mark without its IAC. Anywhere else 255 is a letter of somebody's file name.
func skipTelnet(line []byte) []byte {
	for len(line) > 0 && line[0] == telnetIAC {
		switch {
		case len(line) == 1:
			return nil
		case len(line) >= 3 && line[1] >= telnetWill && line[1] <= telnetDont:
			line = line[3:]
		case line[1] >= telnetNOP && line[1] <= telnetGA:
			line = line[2:]
			if len(line) > 0 && line[0] == telnetDM {
				line = line[1:]
			}
		default:
			return line
		}
	}
	return line
}

// trimEnd returns the line without the CRs at its end: CRLF and bare LF both end a line,
// and some clients send CR CR LF.
func trimEnd(line []byte) []byte { return bytes.TrimRight(line, "\r") }

// verbOf returns the verb of a line as it was received; "" if it is no command.
func verbOf(line []byte) string {
	cmd, _ := judge(line, false)
	return cmd.Verb
}

// transfers reports whether the command is one that has a data connection (RFC 959 section 5.4).
func transfers(verb string) bool {
	switch verb {
	case "RETR", "STOR", "APPE", "STOU", "LIST", "NLST", "MLSD":
		return true
	}
	return false
}

// judge makes a command of a line as it was received, or says what is wrong with it.
func judge(line []byte, tooLong bool) (cmd Command, fault Reply) {
	line = skipTelnet(trimEnd(line))
	switch {
	case tooLong:
		return cmd, Reply{Code: 500, Text: "line too long"}
	case len(line) == 0 || line[0] == ' ': // as vsftpd has it; after silence the client would wait
		return cmd, Reply{Code: 500, Text: "no command"}
	case bytes.IndexByte(line, 0) >= 0:
		return cmd, Reply{Code: 501, Text: "NUL in a command"}
	case bytes.IndexByte(line, '\r') >= 0: // RFC 959 section 5.3.2: no CR in a string
		return cmd, Reply{Code: 501, Text: "CR in a command"}
	}
	return parseCommand(line), Reply{}
}

// passable reports whether the line can be handed to the library as one line.
func passable(line string) bool {
	return line != "" && len(line) <= MaxPass && !strings.ContainsAny(line, "\r\n\x00")
}
