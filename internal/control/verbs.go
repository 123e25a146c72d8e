package control

// verb is one row of the table of commands.
type verb struct {
	name  string
	flags verbFlags
	usage string // for HELP; "": HELP does not name it
	// prepare answers the command (a reply with a code), or changes what the library gets (Command.pass). nil: the library
	// gets the line as it is.
	prepare func(*Conn, *Command) Reply
	// after is called with the final reply, and returns the reply to send. nil: no call.
	after func(*Conn, *Command, Reply) Reply
}

type verbFlags uint8

const (
	open      verbFlags = 1 << iota // allowed before the login
	argument                        // without an argument it is 501: the library would act on the current directory
	oneLine                         // only the last line of the library's reply is sent
	transfers                       // it uses a data connection; the library executes it on another goroutine
)

func (v *verb) is(f verbFlags) bool { return v != nil && v.flags&f != 0 }

// commands returns the commands of the server by name (RFC 959, 1123, 2228, 2389, 2428, 3659, 4217 and drafts).
func commands() map[string]*verb {
	rows := []verb{
		{name: "USER", flags: open | argument, usage: "name", prepare: prepareUser},
		{name: "PASS", flags: open, usage: "password", prepare: preparePass},
		{name: "ACCT", flags: open, usage: "account", prepare: fixed(202, "no account is needed")},
		{name: "QUIT", flags: open, usage: ": end the session"},
		{name: "AUTH", flags: open | argument, usage: "TLS", prepare: authTLS},
		{name: "PBSZ", flags: open | argument, usage: "0", prepare: pbsz},
		{name: "PROT", flags: open | argument, usage: "P or C", prepare: prepareProt, after: afterProt},
		{name: "FEAT", flags: open, usage: ": list the features", prepare: feat},
		{name: "HELP", flags: open, usage: "[command]", prepare: help},
		{name: "SYST", flags: open, usage: ": the kind of system"},
		{name: "NOOP", flags: open, usage: ": do nothing"},
		{name: "CLNT", flags: open, usage: "name and version"},
		{name: "OPTS", flags: open | argument, usage: "UTF8 ON, or MLST facts", prepare: prepareOpts},
		{name: "STAT", flags: open, usage: "[path]", prepare: prepareStat},

		{name: "MKD", flags: argument, usage: "path: acquire the lock of that name, or make a directory"},
		{name: "XMKD", flags: argument, usage: "path: the same as MKD"},
		{name: "RMD", flags: argument, usage: "path: release the lock, or remove an empty directory"},
		{name: "XRMD", flags: argument, usage: "path: the same as RMD"},
		{name: "PWD", usage: ": the current directory"},
		{name: "XPWD", usage: ": the same as PWD"},
		{name: "CWD", flags: argument, usage: "path: change the current directory"},
		{name: "XCWD", flags: argument, usage: "path: the same as CWD"},
		{name: "CDUP", usage: ": change to the directory above", prepare: alias("CDUP")},
		{name: "XCUP", usage: ": the same as CDUP", prepare: alias("CDUP")},
		{name: "SITE", flags: argument, usage: "command: see SITE HELP"},

		{name: "DELE", flags: argument, usage: "path: remove a file"},
		{name: "RNFR", flags: argument, usage: "path: what to rename"},
		{name: "RNTO", flags: argument, usage: "path: its new name"},
		{name: "SIZE", flags: argument, usage: "path: bytes of a file"},
		{name: "MDTM", flags: argument, usage: "path: when it was modified, or a lock acquired", prepare: prepareMdtm},
		{name: "MFMT", flags: argument, usage: "time path: set the modification time", prepare: prepareMfmt, after: afterMfmt},
		{name: "MLST", usage: "[path]: facts about it"},
		{name: "AVBL", usage: "[path]: bytes available"},
		{name: "HASH", flags: argument | oneLine, usage: "path: its digest, see OPTS HASH", prepare: quotePath},
		{name: "XCRC", flags: argument | oneLine, usage: "path: its digest", prepare: quotePath},
		{name: "MD5", flags: argument | oneLine, usage: "path: its digest", prepare: quotePath},
		{name: "XMD5", flags: argument | oneLine, usage: "path: its digest", prepare: quotePath},
		{name: "XSHA", flags: argument | oneLine, usage: "path: its digest", prepare: quotePath},
		{name: "XSHA1", flags: argument | oneLine, usage: "path: its digest", prepare: quotePath},
		{name: "XSHA256", flags: argument | oneLine, usage: "path: its digest", prepare: quotePath},
		{name: "XSHA512", flags: argument | oneLine, usage: "path: its digest", prepare: quotePath},

		{name: "TYPE", flags: argument, usage: "A or I", prepare: upperParam, after: afterType},
		{name: "MODE", flags: argument, usage: "S", prepare: upperParam},
		{name: "STRU", flags: argument, usage: "F", prepare: stru},
		{name: "ALLO", flags: argument, usage: "bytes: how long the next upload will be", prepare: prepareBytes},
		{name: "REST", flags: argument, usage: "offset: where the next transfer begins", prepare: prepareBytes},
		{name: "PASV", usage: ": passive data connection", prepare: preparePasv, after: afterPassive},
		{name: "EPSV", usage: "[1, 2 or ALL]", prepare: prepareEpsv, after: afterPassive},
		{name: "PORT", flags: argument, usage: "h1,h2,h3,h4,p1,p2", prepare: preparePort},
		{name: "EPRT", flags: argument, usage: "|family|address|port|", prepare: prepareEprt},
		{name: "ABOR", usage: ": end the transfer", prepare: abor},

		{name: "RETR", flags: argument | transfers, usage: "path: download"},
		{name: "STOR", flags: argument | transfers, usage: "path: upload"},
		{name: "APPE", flags: argument | transfers, usage: "path: upload to its end"},
		{name: "STOU", flags: transfers, usage: "[path]: upload under a free name", prepare: prepareStou},
		{name: "LIST", flags: transfers, usage: "[-al] [path]", prepare: listing},
		{name: "NLST", flags: transfers, usage: "[path]", prepare: listing},
		{name: "MLSD", flags: transfers, usage: "[path]", prepare: listing},
	}
	all := make(map[string]*verb, len(rows))
	for i := range rows {
		all[rows[i].name] = &rows[i]
	}
	for _, name := range []string{"REIN", "SMNT", "CCC", "LANG", "HOST", "ADAT", "MIC", "CONF", "ENC"} {
		all[name] = &verb{name: name, flags: open, prepare: fixed(502, name+" is not implemented")}
	}
	return all
}
