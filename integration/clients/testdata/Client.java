// The job of a client under TLS, with Apache Commons Net; see matrix_test.go.
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.commons.net.ftp.FTP;
import org.apache.commons.net.ftp.FTPSClient;

public class Client {
    static FTPSClient ftp;

    static void check(boolean ok, String what) throws IOException {
        if (!ok) {
            throw new IOException(what + ": " + ftp.getReplyString());
        }
    }

    static void put(String local, String name) throws IOException {
        try (var in = new FileInputStream(local)) {
            check(ftp.storeFile(name, in), "put");
        }
    }

    public static void main(String[] args) throws Exception {
        var env = System.getenv();
        var store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null);
        try (var in = new FileInputStream(env.get("FTP_CA"))) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(in));
        }
        var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        var context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        ftp = new FTPSClient(!env.getOrDefault("FTP_IMPLICIT", "").isEmpty(), context);
        ftp.setTrustManager(trust.getTrustManagers()[0] instanceof javax.net.ssl.X509TrustManager x ? x : null);
        ftp.setEnabledProtocols(new String[] {"TLSv" + env.get("FTP_VERSION")});
        ftp.setDefaultTimeout(30000);
        ftp.connect(env.get("FTP_HOST"), Integer.parseInt(env.get("FTP_PORT")));
        check(ftp.login(env.get("FTP_USER"), env.get("FTP_PASSWORD")), "login");
        ftp.execPBSZ(0);
        ftp.execPROT("P");
        ftp.setFileType(FTP.BINARY_FILE_TYPE);
        if (env.get("FTP_PASSIVE").equals("1")) {
            ftp.enterLocalPassiveMode();
        }
        check(ftp.makeDirectory("mine_lock"), "mkdir");
        check(!ftp.makeDirectory("taken_lock"), "the lock has two holders");
        System.out.print("refused: " + ftp.getReplyString());
        put("one", "file");
        put("two", "file");
        put("one", "gone");
        try (var out = new FileOutputStream("down")) {
            check(ftp.retrieveFile("file", out), "get");
        }
        System.out.println("listed: " + String.join(" ", ftp.listNames()));
        check(ftp.deleteFile("gone"), "delete");
        check(ftp.removeDirectory("mine_lock"), "rmdir");
        ftp.logout();
        ftp.disconnect();
    }
}
