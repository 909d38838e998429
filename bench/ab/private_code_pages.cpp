#include "bench/ab/private_code_pages.h"

#include <fmt/format.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

namespace halfmark::bench {

namespace {

// NOLINTNEXTLINE(performance-no-int-to-ptr): the loader returns integers
char* pointer_to(uintptr_t address) { return reinterpret_cast<char*>(address); }

// The mapping is private, so the first write to a page makes a copy of it. The byte
// written is the existing byte, so code that runs or reads it at the same time sees
// no difference. A page may start in the sanitizer's red zone of a constant.
__attribute__((no_sanitize("address", "thread", "undefined"))) void write_each(volatile char* begin, size_t bytes,
                                                                               size_t page) {
  for (size_t i = 0; i < bytes; i += page) begin[i] = begin[i];
}

int copy_segments(dl_phdr_info* object, size_t, void* why) {
  static const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t kernels_own = ::getauxval(AT_SYSINFO_EHDR);  // the vDSO is not a file
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0 || (segment.p_flags & PF_R) == 0) continue;
    const uintptr_t begin = (object->dlpi_addr + segment.p_vaddr) / page * page;
    const uintptr_t end = object->dlpi_addr + segment.p_vaddr + segment.p_filesz;
    if (begin <= kernels_own && kernels_own < end) continue;
    const int protection = PROT_READ | ((segment.p_flags & PF_X) != 0 ? PROT_EXEC : 0);
    if (::mprotect(pointer_to(begin), end - begin, protection | PROT_WRITE) != 0) {
      *static_cast<std::string*>(why) =
          fmt::format("{}: code cannot be made writable here: {}",
                      *object->dlpi_name ? object->dlpi_name : "the program", std::strerror(errno));
      return 1;
    }
    write_each(pointer_to(begin), end - begin, page);
    ::mprotect(pointer_to(begin), end - begin, protection);
  }
  return 0;
}

}  // namespace

std::string use_private_code_pages() {
  std::string why;
  ::dl_iterate_phdr(&copy_segments, &why);
  return why;
}

}  // namespace halfmark::bench
