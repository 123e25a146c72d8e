// Asks for a file that does not exist, with basic-ftp, so many times over one session, and lists the directory after each
// refusal. Each refusal must be the server's 550.
//
//   node refused.js HOST PORT USER PASSWORD TIMES TLS
const ftp = require('basic-ftp')
const { Writable } = require('stream')

async function main([host, port, user, password, times, tls]) {
  const client = new ftp.Client(30000)
  await client.access({ host, port: Number(port), user, password, secure: tls === 'tls', secureOptions: { rejectUnauthorized: false } })
  for (let i = 0; i < Number(times); i++) {
    let refusal
    try {
      await client.downloadTo(new Writable({ write: (_, __, done) => done() }), 'missing')
    } catch (error) {
      refusal = error
    }
    if (refusal?.code !== 550) throw new Error(`try ${i}: ${refusal}`)
    await client.list()
  }
  client.close()
}

main(process.argv.slice(2)).catch(error => {
  console.error(String(error))
  process.exit(1)
})
