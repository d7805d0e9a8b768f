/* Calls of librdmacm that are found at run time, where the drop-in has them; and what must go well. The program defines
 * _GNU_SOURCE.
 */
#pragma once

#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

static void* symbol(const char* name) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == NULL) {
    fprintf(stderr, "no %s\n", name);
    _exit(1);
  }
  return found;
}

#define CALL(name) ((__typeof__(&name))symbol(#name))

static void must(int status, const char* what) {
  if (status == 0) return;
  perror(what);
  _exit(1);
}
