<?php
// What a client does with locks and files, with PHP's ftp extension. The environment says where and how; see
// clients_test.go.
function session() {
    $open = getenv('FTP_TLS') ? 'ftp_ssl_connect' : 'ftp_connect';
    $ftp = $open(getenv('FTP_HOST'), (int)getenv('FTP_PORT'), 20);
    check($ftp && ftp_login($ftp, getenv('FTP_USER'), getenv('FTP_PASSWORD')), 'login');
    check(ftp_pasv($ftp, getenv('FTP_PASSIVE') === '1'), 'pasv');
    return $ftp;
}
function check($ok, $what) { if (!$ok) { echo "$what failed\n"; exit(1); } }

$type = getenv('FTP_TYPE') === 'A' ? FTP_ASCII : FTP_BINARY;
$local = getenv('LOCAL');
$lock = getenv('FTP_DIR') . '/phone_lock';
$one = session();
$two = session();
check(ftp_mkdir($one, $lock) === $lock, 'mkdir');
check(!@ftp_mkdir($two, $lock), 'one holder');
echo 'refused: ', error_get_last()['message'], "\n";
check(!@ftp_rmdir($two, $lock), 'release by the other');
check(ftp_rmdir($one, $lock), 'rmdir');
check(ftp_mkdir($two, $lock) === $lock, 'second mkdir');
check(ftp_rmdir($two, $lock), 'second rmdir');

check(ftp_chdir($one, getenv('FTP_DIR')), 'chdir');
check(ftp_put($one, 'first', "$local/up", $type), 'put');
check(in_array('first', ftp_nlist($one, '.')), 'nlist');
check(in_array('first', array_column(ftp_mlsd($one, '.'), 'name')), 'mlsd');
check(ftp_get($one, "$local/down", 'first', $type), 'get');
check(ftp_rename($one, 'first', 'kept'), 'rename');
check(ftp_put($one, 'gone', "$local/up", $type), 'put');
check(ftp_delete($one, 'gone'), 'delete');
check(ftp_close($one) && ftp_close($two), 'close');
