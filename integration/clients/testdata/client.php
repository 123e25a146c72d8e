<?php
// The job of a client, with PHP's ftp extension; see matrix_test.go.
function check($ok, $what) { if (!$ok) { echo "$what failed: ", error_get_last()['message'] ?? '', "\n"; exit(1); } }

$open = getenv('FTP_TLS') ? 'ftp_ssl_connect' : 'ftp_connect';
$type = getenv('FTP_TYPE') === 'A' ? FTP_ASCII : FTP_BINARY;
$ftp = $open(getenv('FTP_HOST'), (int)getenv('FTP_PORT'), 30);
check($ftp && @ftp_login($ftp, getenv('FTP_USER'), getenv('FTP_PASSWORD')), 'login');
check(ftp_pasv($ftp, getenv('FTP_PASSIVE') === '1'), 'pasv');
check(@ftp_mkdir($ftp, 'mine_lock') === '/mine_lock', 'mkdir');
check(!@ftp_mkdir($ftp, 'taken_lock'), 'one holder');
echo 'refused: ', error_get_last()['message'], "\n";
check(@ftp_put($ftp, 'file', 'one', $type), 'put');
check(@ftp_put($ftp, 'file', 'two', $type), 'replace');
check(@ftp_put($ftp, 'gone', 'one', $type), 'put');
check(@ftp_get($ftp, 'down', 'file', $type), 'get');
echo 'listed: ', implode(' ', ftp_nlist($ftp, '.')), "\n";
check(in_array('file', array_column(ftp_mlsd($ftp, '.'), 'name')), 'mlsd');
check(@ftp_rename($ftp, 'gone', 'kept'), 'rename');
check(@ftp_delete($ftp, 'kept'), 'delete');
check(@ftp_rmdir($ftp, 'mine_lock'), 'rmdir');
check(ftp_close($ftp), 'close');
