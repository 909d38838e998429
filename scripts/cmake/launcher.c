/* bin/halfmark of the archive: starts libexec/halfmark. The loader reads the location of a program from /proc, and with it that
 * of the libraries beside it. Without /proc (a bare chroot, some sandboxes) it needs LD_ORIGIN_PATH before the program starts. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static int fail(const char* what, const char* name) {
  fprintf(stderr, "halfmark: %s %s: %s\n", what, name, strerror(errno));
  return 2;
}

/* "/a/bin/halfmark" -> "/a/bin"; false when there is no parent. */
static int cut_last(char* path) {
  char* slash = strrchr(path, '/');
  if (slash) *slash = 0;
  return slash != NULL;
}

int main(int argc, char** argv) {
  char self[PATH_MAX];
  char program[PATH_MAX + sizeof "/libexec/halfmark"];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
  (void)argc;
  if (length > 0) {
    self[length] = 0;
  } else {
    const char* called = (const char*)getauxval(AT_EXECFN); /* as execve(2) was called, never looked up in PATH */
    if (!called || !realpath(called, self)) return fail("/proc is missing, cannot find", called ? called : "itself");
  }
  if (!cut_last(self) || !cut_last(self)) return fail("no folder above", self);
  if (length <= 0) {
    snprintf(program, sizeof program, "%s/libexec", self);
    setenv("LD_ORIGIN_PATH", program, 1); /* ld.so(8): used for $ORIGIN if /proc is missing */
  }
  snprintf(program, sizeof program, "%s/libexec/halfmark", self);
  execv(program, argv);
  return fail("cannot start", program);
}
