#include "hostile.h"
#include <net/if.h>
#include <net/route.h>
#include <linux/sockios.h>
int main(void)
{
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    struct ifreq request = {0};
    struct rtentry route = {0};
    strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    MUST_FAIL(ioctl(fd, SIOCSIFFLAGS, &request));
    struct sockaddr_in *address = (void *)&request.ifr_addr;
    address->sin_family = AF_INET;
    inet_pton(AF_INET, "127.0.0.1", &address->sin_addr);
    MUST_FAIL(ioctl(fd, SIOCSIFADDR, &request));
    MUST_FAIL(ioctl(fd, SIOCADDRT, &route));
    MUST_FAIL(ioctl(fd, SIOCBRADDBR, "br0"));
    long asked[64] = {0}; /* which loads modules */
    MUST_FAIL(ioctl(fd, SIOCGIFBR, asked));
    MUST_FAIL(ioctl(fd, SIOCGIFVLAN, asked));
    MUST_FAIL(socket(AF_NETLINK, SOCK_RAW, 0));
    struct if_nameindex *all = if_nameindex();
    for (struct if_nameindex *at = all; at && at->if_index; at++)
        if (strcmp(at->if_name, "lo") != 0 && strncmp(at->if_name, "tunl", 4) != 0 &&
            strncmp(at->if_name, "sit", 3) != 0 && strncmp(at->if_name, "gre", 3) != 0)
            ESCAPED("there is the device %s", at->if_name);
    HELD();
    return 0;
}
