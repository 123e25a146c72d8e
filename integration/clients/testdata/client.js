// The job of a client under TLS, with basic-ftp; see matrix_test.go.
const ftp = require('basic-ftp')
const fs = require('fs')

async function main(env) {
  const client = new ftp.Client(30000)
  await client.access({
    host: env.FTP_HOST, port: Number(env.FTP_PORT), user: env.FTP_USER, password: env.FTP_PASSWORD,
    secure: env.FTP_IMPLICIT ? 'implicit' : true,
    secureOptions: { ca: fs.readFileSync(env.FTP_CA), minVersion: 'TLSv' + env.FTP_VERSION, maxVersion: 'TLSv' + env.FTP_VERSION },
  })
  await client.send('MKD mine_lock')
  try {
    await client.send('MKD taken_lock')
  } catch (error) {
    console.log('refused:', error.message)
  }
  await client.uploadFrom('one', 'file')
  await client.uploadFrom('two', 'file')
  await client.uploadFrom('one', 'gone')
  await client.downloadTo('down', 'file')
  console.log('listed:', (await client.list()).map(entry => entry.name).join(' '))
  await client.remove('gone')
  await client.send('RMD mine_lock')
  client.close()
}

main(process.env).catch(error => {
  console.error(String(error))
  process.exit(1)
})
