// Text into files that other programs wait for or read.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"
#include "fairlead/status.h"

namespace fairlead::bench {

/// "cannot WHAT PATH: the system's reason", with the code that fits `error` (an errno).
[[nodiscard]] Status file_error(std::string_view what, std::string_view path, int error);

/// What the links of the last component lead to, which need not be there.
[[nodiscard]] std::string behind_links(const std::string& path);

/// Who may read and write what lies there, if anything does.
[[nodiscard]] std::optional<mode_t> mode_of(const std::string& path);

/// A new file, nobody else's however he guessed the name; private while it is not whole, if what it replaces may be.
/// Invalid: errno says why.
[[nodiscard]] UniqueFd create_to_replace(const std::string& path, std::optional<mode_t> replaced);
/// Who may read and write what was replaced may so of this. False: errno says why.
[[nodiscard]] bool take_mode(int fd, std::optional<mode_t> replaced) noexcept;

/// Whether write_text(path) could begin: for before a long run whose result goes there. Creates and removes a file
/// beside it; writes nothing.
[[nodiscard]] Status check_writable(const std::string& path);

/// Writes beside the file and renames, so that a reader sees nothing or everything; links stay, and who may read it.
/// "-" writes to standard output. What is no file, or one that is open already (/dev/stdout), is written to where it
/// is. Errors name the file and the system's reason.
Status write_text(const std::string& path, std::string_view text);

}  // namespace fairlead::bench
