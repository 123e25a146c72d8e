<?php
// The job of a client under TLS, with PHP's ftp extension; see tlsclients_test.go.
function check($ok, $what) { if (!$ok) { echo "$what failed: ", error_get_last()['message'] ?? '', "\n"; exit(1); } }

$ftp = ftp_ssl_connect(getenv('FTP_HOST'), (int)getenv('FTP_PORT'), 30);
check($ftp && @ftp_login($ftp, getenv('FTP_USER'), getenv('FTP_PASSWORD')), 'login');
check(ftp_pasv($ftp, getenv('FTP_PASSIVE') === '1'), 'pasv');
check(@ftp_mkdir($ftp, 'mine_lock'), 'mkdir');
check(!@ftp_mkdir($ftp, 'taken_lock'), 'one holder');
echo 'refused: ', error_get_last()['message'], "\n";
check(@ftp_put($ftp, 'file', 'one', FTP_BINARY), 'put');
check(@ftp_put($ftp, 'file', 'two', FTP_BINARY), 'replace');
check(@ftp_put($ftp, 'gone', 'one', FTP_BINARY), 'put');
check(@ftp_get($ftp, 'down', 'file', FTP_BINARY), 'get');
echo 'listed: ', implode(' ', ftp_nlist($ftp, '.')), "\n";
check(@ftp_delete($ftp, 'gone'), 'delete');
check(@ftp_rmdir($ftp, 'mine_lock'), 'rmdir');
check(ftp_close($ftp), 'close');
