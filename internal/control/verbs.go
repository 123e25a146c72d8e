package control

// verb is one row of the table of commands.
type verb struct {
	name  string
	flags verbFlags
	usage string // for HELP; "": HELP does not name it
	// prepare answers the command (a reply with a code), or changes the line for the library (Command.forLibrary). nil: the library
	// gets the line as it is.
	prepare func(*Conn, *Command) Reply
	// after is called with the final reply, and returns the reply to send. nil: no call.
	after func(*Conn, *Command, Reply) Reply
}

type verbFlags uint8

const (
	beforeLogin   verbFlags = 1 << iota // allowed before the login
	needsArgument                       // without an argument it is 501: the library would act on the current directory
	oneLine                             // only the last line of the library's reply is sent
	usesData                            // it uses a data connection; the library executes it on another goroutine
)

func (v *verb) is(f verbFlags) bool { return v != nil && v.flags&f != 0 }

// Digests are the commands for one digest each, which FEAT lists, too.
var Digests = []string{"XCRC", "MD5", "XMD5", "XSHA", "XSHA1", "XSHA256", "XSHA512"}

// commands returns the commands of the server by name (RFC 959, 1123, 2228, 2389, 2428, 3659, 4217 and drafts).
func commands() map[string]*verb {
	rows := []verb{
		{name: "USER", flags: beforeLogin | needsArgument, usage: "name", prepare: prepareUser},
		{name: "PASS", flags: beforeLogin, usage: "password", prepare: preparePass},
		{name: "ACCT", flags: beforeLogin, usage: "account", prepare: fixed(202, "no account is needed")},
		{name: "QUIT", flags: beforeLogin, usage: ": end the session"},
		{name: "AUTH", flags: beforeLogin | needsArgument, usage: "TLS", prepare: authTLS},
		{name: "PBSZ", flags: beforeLogin | needsArgument, usage: "0", prepare: pbsz},
		{name: "PROT", flags: beforeLogin | needsArgument, usage: "P or C", prepare: prepareProt, after: afterProt},
		{name: "FEAT", flags: beforeLogin, usage: ": list the features", prepare: feat},
		{name: "HELP", flags: beforeLogin, usage: "[command]", prepare: help},
		{name: "SYST", flags: beforeLogin, usage: ": the kind of system"},
		{name: "NOOP", flags: beforeLogin, usage: ": do nothing"},
		{name: "CLNT", flags: beforeLogin, usage: "name and version"},
		{name: "OPTS", flags: beforeLogin | needsArgument, usage: "UTF8 ON, or MLST facts", prepare: prepareOpts},
		{name: "STAT", flags: beforeLogin, usage: "[path]", prepare: prepareStat},

		{name: "MKD", flags: needsArgument, usage: "path: acquire the lock of that name, or make a directory"},
		{name: "XMKD", flags: needsArgument, usage: "path: the same as MKD"},
		{name: "RMD", flags: needsArgument, usage: "path: release the lock, or remove an empty directory"},
		{name: "XRMD", flags: needsArgument, usage: "path: the same as RMD"},
		{name: "PWD", usage: ": the current directory"},
		{name: "XPWD", usage: ": the same as PWD"},
		{name: "CWD", flags: needsArgument, usage: "path: change the current directory"},
		{name: "XCWD", flags: needsArgument, usage: "path: the same as CWD"},
		{name: "CDUP", usage: ": change to the directory above", prepare: alias("CDUP")},
		{name: "XCUP", usage: ": the same as CDUP", prepare: alias("CDUP")},
		{name: "SITE", flags: needsArgument, usage: "command: see SITE HELP"},

		{name: "DELE", flags: needsArgument, usage: "path: remove a file"},
		{name: "RNFR", flags: needsArgument, usage: "path: what to rename"},
		{name: "RNTO", flags: needsArgument, usage: "path: its new name"},
		{name: "SIZE", flags: needsArgument, usage: "path: bytes of a file"},
		{name: "MDTM", flags: needsArgument, usage: "path: when it was modified, or a lock acquired", prepare: prepareMdtm},
		{name: "MFMT", flags: needsArgument, usage: "time path: set the modification time", prepare: prepareMfmt},
		{name: "MLST", usage: "[path]: the facts of a file or directory"},
		{name: "AVBL", usage: "[path]: bytes available"},
		{name: "HASH", flags: needsArgument | oneLine, usage: "path: its digest, see OPTS HASH", prepare: quotePath},

		{name: "TYPE", flags: needsArgument, usage: "A or I", prepare: prepareType, after: afterType},
		{name: "MODE", flags: needsArgument, usage: "S", prepare: upperParam},
		{name: "STRU", flags: needsArgument, usage: "F", prepare: stru},
		{name: "ALLO", flags: needsArgument, usage: "bytes: how long the next upload will be", prepare: prepareBytes},
		{name: "REST", flags: needsArgument, usage: "offset: where the next transfer begins", prepare: prepareBytes},
		{name: "PASV", usage: ": passive data connection", prepare: preparePasv, after: afterPassive},
		{name: "EPSV", usage: "[1, 2 or ALL]", prepare: prepareEpsv, after: afterPassive},
		{name: "PORT", flags: needsArgument, usage: "h1,h2,h3,h4,p1,p2", prepare: preparePort},
		{name: "EPRT", flags: needsArgument, usage: "|family|address|port|", prepare: prepareEprt},
		{name: "ABOR", usage: ": end the transfer", prepare: abor},

		{name: "RETR", flags: needsArgument | usesData, usage: "path: download"},
		{name: "STOR", flags: needsArgument | usesData, usage: "path: upload"},
		{name: "APPE", flags: needsArgument | usesData, usage: "path: upload to its end"},
		{name: "STOU", flags: usesData, usage: "[path]: upload under a free name", prepare: prepareStou},
		// The driver writes the lines of a listing, sorted and with globs: to the library it is a download.
		{name: "LIST", flags: usesData, usage: "[-al] [path]", prepare: alias("RETR .")},
		{name: "NLST", flags: usesData, usage: "[path]", prepare: alias("RETR .")},
		{name: "MLSD", flags: usesData, usage: "[path]", prepare: alias("RETR .")},
	}
	all := make(map[string]*verb, len(rows))
	for i := range rows {
		all[rows[i].name] = &rows[i]
	}
	for _, name := range Digests {
		all[name] = &verb{name: name, flags: needsArgument | oneLine, usage: "path [start [end]]: its digest", prepare: quotePathBeforeRange}
	}
	for _, name := range []string{"REIN", "SMNT", "CCC", "LANG", "HOST", "ADAT", "MIC", "CONF", "ENC"} {
		all[name] = &verb{name: name, flags: beforeLogin, prepare: fixed(502, name+" is not implemented")}
	}
	return all
}
