#include "hostile.h"
/* The sum of everything that has been counted; the settings among the numbers are constant. */
static long long sum_up(const char *path)
{
    char word[100];
    long long sum = 0;
    FILE *file = fopen(path, "r");
    while (file && fscanf(file, "%99s", word) == 1)
        sum += atoll(word);
    if (file)
        fclose(file);
    return sum;
}
static long long count(void)
{
    return sum_up("/proc/self/net/snmp") + sum_up("/proc/self/net/snmp6") +
           sum_up("/proc/self/net/netstat") + sum_up("/proc/self/net/dev_snmp6/lo");
}
int main(void)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(9)};
    struct sockaddr_in6 there6 = {.sin6_family = AF_INET6, .sin6_port = htons(9)};
    inet_pton(AF_INET, "192.0.2.1", &there.sin_addr);
    inet_pton(AF_INET6, "2001:db8::1", &there6.sin6_addr);
    long long before = count();
    for (int i = 0; i < 100; i++) {
        int fd = socket(AF_INET, i % 2 ? SOCK_DGRAM : SOCK_STREAM, 0);
        int fd6 = socket(AF_INET6, i % 2 ? SOCK_DGRAM : SOCK_STREAM, 0);
        connect(fd, (void *)&there, sizeof there);
        connect(fd6, (void *)&there6, sizeof there6);
        sendto(fd, "x", 1, MSG_NOSIGNAL, (void *)&there, sizeof there);
        sendto(fd6, "x", 1, MSG_NOSIGNAL, (void *)&there6, sizeof there6);
        close(fd);
        close(fd6);
    }
    if (count() != before)
        ESCAPED("the kernel counted %lld, and would tell the next run", count() - before);
    HELD();
    return 0;
}
