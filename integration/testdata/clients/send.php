<?php
// Uploads its standard input. FTP_TLS=1 in the environment asks for TLS.
// usage: send.php host port user password A|I path
[, $host, $port, $user, $password, $type, $path] = $argv;
$open = getenv('FTP_TLS') ? 'ftp_ssl_connect' : 'ftp_connect';
$ftp = $open($host, (int)$port, 20);
if (!$ftp || !ftp_login($ftp, $user, $password) || !ftp_pasv($ftp, true)) exit(1);
if (!ftp_fput($ftp, $path, STDIN, $type === 'A' ? FTP_ASCII : FTP_BINARY)) exit(1);
if (!ftp_close($ftp)) exit(1);
