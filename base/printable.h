// Text that a peer or a file wrote, made fit for a terminal and a log.
#pragma once

#include <string>
#include <string_view>

namespace fairlead {

/// Everything but what could do something other than be seen: control characters (ESC, line feeds, those of C1),
/// characters that turn the direction of text or end a line, and bytes that are no UTF-8 become "\xNN", "\n", "\t" and
/// the like. Log lines and the console's lines pass through it as a whole, so whoever words them need not think of it.
[[nodiscard]] std::string printable(std::string_view text);
/// Whether printable() would leave it as it is.
[[nodiscard]] bool is_printable(std::string_view text) noexcept;

}  // namespace fairlead
