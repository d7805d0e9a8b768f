#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/principal_name.h"
#include "cli/base/args.h"
#include "cli/base/console.h"
#include "cli/commands.h"

namespace fairlead::cli {
namespace {

Setter set_principal(std::string* target) {
  return [target](std::string_view text) {
    if (!is_principal_name(text)) {
      return Status(Code::kInvalidArgument, fmt::format("'{}' is no name: a name has {}", text, kLegalPrincipalName));
    }
    *target = text;
    return Status();
  };
}

}  // namespace

int key_command(Words words) {
  std::string name;
  Args args(
      "key",
      "Makes a line for a keys file (--keys): a name, and a new random key of 256 bits. Both ends of a session need "
      "the same line, in files that nobody else may read (mode 0600).",
      "Example:\n  umask 077; fairlead key trainer >> keys\n"
      "  fairlead serve --listen 0.0.0.0:7471 --keys keys\n"
      "  fairlead push model.safetensors gpu7:7471 --keys keys --principal trainer");
  args.positional("NAME", "Who shows the key: the principal", set_principal(&name));
  if (const auto exit = args.parse(words)) return *exit;
  std::array<unsigned char, 32> key{};
  if (::getrandom(key.data(), key.size(), 0) != static_cast<ssize_t>(key.size())) {
    Console("key").error(fmt::format("the system gives no random bytes: {}", std::strerror(errno)));
    return kFailure;
  }
  std::string digits;
  for (const unsigned char byte : key) digits += fmt::format("{:02x}", byte);
  fmt::print("{} {}\n", name, digits);
  return kSuccess;
}

}  // namespace fairlead::cli
