/* Our own faults: said in words, never mixed up with the program's. */
#include "box.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fault_say(struct fault *fault, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    return -1;
}

int fault_errno(struct fault *fault, const char *format, ...)
{
    int error = errno;
    va_list args;
    va_start(args, format);
    vsnprintf(fault->text, sizeof fault->text, format, args);
    va_end(args);
    size_t used = strlen(fault->text);
    snprintf(fault->text + used, sizeof fault->text - used, ": %s", strerror(error));
    return -1;
}

void die(const char *format, ...)
{
    va_list args;
    fputs("oj-box: ", stderr);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}
