// The input is what a client sends on one connection, any bytes. They go through a loopback socket to the real HTTP
// layer; the scheduler behind it is fake_scheduler.c. The server must answer or close, and stay alive; no answer may be
// its own fault.
#define _GNU_SOURCE // memmem
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fake_scheduler.h"
#include "fuzz/fuzz.h"

enum { PATIENCE_MS = 30000, REPLY_MAX = 1 << 22 };

static uint16_t start(void) {
    md_app *app = fake_app();
    static md_http *http; // lives as long as the process
    uint16_t port;
    signal(SIGPIPE, SIG_IGN);
    require(md_conns_start(&app->metrics, &app->conns, NULL) == MD_OK);
    require(md_http_start(app, "127.0.0.1", 0, &http, &port, NULL) == MD_OK);
    return port;
}

// Each connection comes from another loopback address: of one address the ports would run out, since those of closed
// connections stay taken for a minute.
static int connect_to(uint16_t port) {
    static uint16_t from;
    const struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(0x7f010000u + from++)};
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    require(fd >= 0 && bind(fd, (const struct sockaddr *)&own, sizeof own) == 0);
    require(connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

// Sends and receives until the server closes.
static size_t talk(int fd, const char *bytes, size_t n, char *reply) {
    size_t sent = 0, got = 0;
    for (;;) {
        struct pollfd wait = {.fd = fd, .events = (short)(POLLIN | (sent < n ? POLLOUT : 0))};
        int ready = poll(&wait, 1, PATIENCE_MS);
        if (ready < 0 && errno == EINTR) continue; // libFuzzer's own timer
        require(ready > 0);                        // else the server hangs
        if (wait.revents & POLLOUT) {
            ssize_t more = send(fd, bytes + sent, n - sent, MSG_DONTWAIT);
            sent = more > 0 ? sent + (size_t)more : n;
            if (sent == n) shutdown(fd, SHUT_WR);
        }
        if (!(wait.revents & (POLLIN | POLLHUP | POLLERR))) continue;
        ssize_t more = recv(fd, reply + got, REPLY_MAX - got, MSG_DONTWAIT);
        if (more <= 0) return got;
        got += (size_t)more;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static uint16_t port;
    static char reply[REPLY_MAX];
    if (!size) return 0;
    if (!port) port = start();
    fake_answer("Once upon a time", 16);
    int fd = connect_to(port);
    size_t n = talk(fd, (const char *)data, size, reply);
    close(fd);
    if (n) require(n > 12 && memcmp(reply, "HTTP/1.", 7) == 0);
    require(!memmem(reply, n, "\"server_error\"", 14));
    return 0;
}
