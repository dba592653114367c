// The input is what a client sends on one connection, any bytes. They go through a loopback socket to the real HTTP
// layer; the scheduler behind it is fake_scheduler.c. The server must answer or close, and stay alive; no answer may be
// its own fault, and when the connection is closed nothing of it is left.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "fuzz/fake_scheduler.h"
#include "fuzz/fuzz.h"

enum { PATIENCE_MS = 60000, REPLY_MAX = 1 << 22 };

static uint16_t start(void) {
    md_app *app = fake_app();
    static md_http *http; // lives as long as the process
    md_http_place place;
    signal(SIGPIPE, SIG_IGN);
    require(md_conns_start(&app->metrics, &app->conns, NULL) == MD_OK);
    require(md_http_start(app, "127.0.0.1", 0, &http, &place, NULL) == MD_OK);
    return place.port;
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
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
    require(errno == EINTR); // libFuzzer's own timer, while the other side was busy: connecting goes on
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int ready, failed = 0;
    while ((ready = poll(&wait, 1, PATIENCE_MS)) < 0 && errno == EINTR) {
    }
    require(ready == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &(socklen_t){sizeof failed}) == 0 && !failed);
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

// The server's side of the connection may be gone a little later than the client sees its end.
static void wait_for_end(md_app *app) {
    uint64_t end = md_clock_ms() + PATIENCE_MS;
    while (atomic_load(&app->metrics.connections)) {
        require(md_clock_ms() < end);
        nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

// Responses so far that were the server's own fault. They are counted, not looked for in what the client gets: there a
// text that is echoed may say anything.
static uint64_t faults(md_app *app) {
    md_buf text;
    uint64_t sum = 0;
    md_buf_init(&text, 1 << 20);
    require(md_metrics_write(&app->metrics, &text) == MD_OK);
    static const char line[] = "\nmegadecode_responses_total{code=\"5";
    for (const char *at = md_buf_str(&text); (at = strstr(at, line)); at++)
        sum += strtoull(strchr(at, '}') + 1, NULL, 10);
    md_buf_free(&text);
    return sum;
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
    wait_for_end(fake_app());
    require(faults(fake_app()) == 0);
    return 0;
}
