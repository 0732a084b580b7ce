#include "hostile.h"
static void reach(const char *host, int port, int type)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    int is_six = inet_pton(AF_INET, host, &four.sin_addr) != 1;
    if (is_six)
        inet_pton(AF_INET6, host, &six.sin6_addr);
    struct sockaddr *address = is_six ? (void *)&six : (void *)&four;
    socklen_t length = is_six ? sizeof six : sizeof four;
    int fd = socket(is_six ? AF_INET6 : AF_INET, type | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return;
    /* 0.0.0.0 is the box itself: the packet is dropped by a device that is down. */
    if (strcmp(host, "0.0.0.0") != 0 && sendto(fd, "x", 1, MSG_NOSIGNAL, address, length) >= 0)
        ESCAPED("sent to %s", host);
    if (connect(fd, address, length) == 0 || errno == EINPROGRESS)
        ESCAPED("connected to %s", host);
    close(fd);
}
int main(void)
{
    const char *hosts[] = {"127.0.0.1", "0.0.0.0", "127.1.2.3", "10.0.0.1", "192.168.0.1", "8.8.8.8",
                           "169.254.169.254", "224.0.0.1", "255.255.255.255", "::1", "::",
                           "fe80::1", "ff02::1", "2001:4860:4860::8888", "::ffff:127.0.0.1"};
    int ports[] = {@PORT@, 22, 53, 80, 7500, 7501, 7503};
    for (size_t h = 0; h < sizeof hosts / sizeof *hosts; h++)
        for (size_t p = 0; p < sizeof ports / sizeof *ports; p++) {
            reach(hosts[h], ports[p], SOCK_STREAM);
            reach(hosts[h], ports[p], SOCK_DGRAM);
        }
    HELD();
    return 0;
}
