# The job of a client under TLS, with Net::FTP of Ruby; see matrix_test.go.
require "net/ftp"

version = ENV["FTP_VERSION"] == "1.2" ? OpenSSL::SSL::TLS1_2_VERSION : OpenSSL::SSL::TLS1_3_VERSION
ftp = Net::FTP.new(ENV["FTP_HOST"], port: ENV["FTP_PORT"].to_i, username: ENV["FTP_USER"], password: ENV["FTP_PASSWORD"],
  passive: ENV["FTP_PASSIVE"] == "1", read_timeout: 30, ssl: {ca_file: ENV["FTP_CA"], min_version: version, max_version: version})
ftp.mkdir("mine_lock")
begin
  ftp.mkdir("taken_lock")
rescue Net::FTPPermError => e
  puts "refused: #{e.message}"
end
ftp.putbinaryfile("one", "file")
ftp.putbinaryfile("two", "file")
ftp.putbinaryfile("one", "gone")
ftp.getbinaryfile("file", "down")
puts "listed: #{ftp.nlst.join(" ")}"
ftp.delete("gone")
ftp.rmdir("mine_lock")
ftp.quit
ftp.close
