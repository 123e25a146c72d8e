<?php
// Uploads under a temporary name, locks, deletes the old file, renames, unlocks: as programs did before servers could do it.
// usage: old.php host port user password directory file
[, $host, $port, $user, $password, $dir, $file] = $argv;
$ftp = ftp_connect($host, (int)$port, 20);
$ok = $ftp && ftp_login($ftp, $user, $password) && ftp_pasv($ftp, true) && ftp_chdir($ftp, $dir)
    && ftp_put($ftp, 'phone.tmp', $file, FTP_BINARY) && ftp_mkdir($ftp, 'phone_lock') && ftp_delete($ftp, 'phone.tsv')
    && ftp_rename($ftp, 'phone.tmp', 'phone.tsv') && ftp_rmdir($ftp, 'phone_lock') && ftp_close($ftp);
exit($ok ? 0 : 1);
