/* What a wheel that was built for a C library before 2.33 sees of softroce's files: it imports __xstat, not stat.
 * One line for each thing asked, with the device open.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#undef ibv_get_device_list

#if defined(__x86_64__)
enum { kStatVersion = 1 };
#else
enum { kStatVersion = 0 };
#endif

int __xstat(int version, const char* path, struct stat* facts);
int __xstat64(int version, const char* path, struct stat64* facts);
int __lxstat(int version, const char* path, struct stat* facts);

#define CLASS "/sys/class/infiniband/soft0"

static void say(const char* call, const char* what) { printf("%s: %s\n", call, what); }

static const char* kind(int status, const mode_t* mode) {
  return status != 0 ? "no" : S_ISCHR(*mode) ? "character device" : S_ISDIR(*mode) ? "folder" : "file";
}

static void say_stat(const char* path) {
  struct stat facts;
  struct stat64 facts64;
  say("__xstat", kind(__xstat(kStatVersion, path, &facts), &facts.st_mode));
  say("__xstat64", kind(__xstat64(kStatVersion, path, &facts64), &facts64.st_mode));
  say("__lxstat", kind(__lxstat(kStatVersion, path, &facts), &facts.st_mode));
  say("stat64", kind(stat64(path, &facts64), &facts64.st_mode));
  say("access", access(path, R_OK) == 0 ? "yes" : "no");
}

static void say_realpath(const char* path) {
  char resolved[PATH_MAX];
  say("realpath", realpath(path, resolved) != NULL ? resolved : "no");
  char* made = realpath(path, NULL);
  say("realpath", made != NULL ? made : "no");
  free(made);
}

static void say_text(const char* path) {
  char text[64] = "";
  FILE* files[] = {fopen(path, "r"), fopen64(path, "r")};
  for (int i = 0; i < 2; ++i) {
    say(i == 0 ? "fopen" : "fopen64",
        files[i] != NULL && fgets(text, sizeof(text), files[i]) != NULL ? strtok(text, "\n") : "no");
    if (files[i] != NULL) fclose(files[i]);
  }
  int fds[] = {open(path, O_RDONLY), open64(path, O_RDONLY)};
  for (int i = 0; i < 2; ++i) {
    ssize_t got = fds[i] >= 0 ? read(fds[i], text, sizeof(text) - 1) : 0;
    text[got > 0 ? got : 0] = '\0';
    say(i == 0 ? "open" : "open64", got > 0 ? strtok(text, "\n") : "no");
    if (fds[i] >= 0) close(fds[i]);
  }
}

/* As NCCL and the wheels: by name, so that no library is needed to build this. */
static int open_device(void) {
  void* library = dlopen("libibverbs.so.1", RTLD_NOW);
  if (library == NULL) return -1;
  struct ibv_device** list = ((__typeof__(&ibv_get_device_list))dlsym(library, "ibv_get_device_list"))(NULL);
  return list != NULL && ((__typeof__(&ibv_open_device))dlsym(library, "ibv_open_device"))(list[0]) != NULL ? 0 : -1;
}

int main(void) {
  if (open_device() != 0) {
    fprintf(stderr, "no device\n");
    return 1;
  }
  const char* seen[] = {"/dev/infiniband/softroce", CLASS, CLASS "/device/numa_node", "/dev/infiniband/other",
                        CLASS "1"};
  for (size_t i = 0; i < sizeof(seen) / sizeof(*seen); ++i) {
    printf("# %s\n", seen[i]);
    say_stat(seen[i]);
  }
  const char* links[] = {CLASS,
                         CLASS "/",
                         CLASS "/../..",
                         CLASS "/../../../../..",
                         CLASS "/./device/numa_node",
                         CLASS "/nothing",
                         CLASS "/../other",
                         CLASS "1/../.."};
  for (size_t i = 0; i < sizeof(links) / sizeof(*links); ++i) {
    printf("# %s\n", links[i]);
    say_realpath(links[i]);
  }
  const char* texts[] = {CLASS "/device/numa_node",          "/sys/devices/virtual/infiniband/soft0/device/numa_node",
                         CLASS "/ports/1/gid_attrs/ndevs/1", CLASS "/ports/1/gid_attrs/types/1",
                         CLASS "/ports/1/nothing/1",         CLASS "1/device/numa_node"};
  for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); ++i) {
    printf("# %s\n", texts[i]);
    say_text(texts[i]);
  }
  return 0;
}
