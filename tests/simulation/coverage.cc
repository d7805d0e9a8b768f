#include "coverage.h"

#include <fmt/format.h>

#include <string_view>

namespace fairlead::simulation {

using datapath::PathEvent;
using datapath::PathState;
using datapath::SessionEvent;
using datapath::SessionPhase;

namespace {

// What can be between honest ends:
//   x  is to be seen in thousands of schedules
//   o  can be, but too seldom to be asked for
// and what cannot, with the reason. What liars say is in tests/datapath/path_set_test.cc, every pair of it.
//   r  the role: only the other end is told so, or is ever in this state
//   q  the sequence of frames: it is said once, and either before or not yet
//   n  there is no path that could report, or none that still does: it was closed
//   t  nothing looks at it in this state
//   d  the active end has no path before its first, after its last and while it waits to try again: it hears no frames
//      of paths then but what was said of the last one
//   e  the session has ended: it hears nothing
//   h  an honest peer gives no reason
//   s  the simulator's connections stand as soon as they are dialled, and names are not resolved
constexpr std::string_view kPaths[2][datapath::kPathStates] = {
    // offer, answer, connected, peer ready, peer down, down, timeout, fence, fence ack, drained, shut, better
    {"ronoxntrdtxq",   // none
     "rxxxxxxrqtxq",   // setting up
     "rqqxxxxrqtoq",   // proved
     "roooxxtrqtxx",   // in use
     "rqooxntrqxxq",   // closing
     "rqnoxntrxtxq"},  // fenced
    {"xrnoxntxrtxr", "qrxxxxxortxr", "qrqxxxxqrtor", "xrqooxtxrtxr", "xrooxntxrxxr", "rrrrrrrrrrrr"}};

constexpr std::string_view kSessions[2][datapath::kSessionPhases] = {
    // connected, hello, usable, close asked, goodbye, hung up, resumed, failed, drained
    {"sssssssss",   // resolving
     "xqqoqqqso",   // connecting
     "qxqxoxqxx",   // hello
     "xqxxxxxxx",   // open
     "oqxoxooxo",   // closing
     "xqnoxxxhx",   // draining
     "eeeoeeeee"},  // closed
    {"rrrrrrrrr", "rrrrrrrrr", "rxqxoxqxx", "rqxxxxxxx", "rqxoxooxo", "rqnoxxxhx", "reeoeeeee"}};

template <typename State, typename Event, typename Counts>
std::string table(const Counts& counts) {
  std::string text = fmt::format("{:12}", "");
  for (std::size_t event = 0; event < counts[0].size(); ++event) {
    text += fmt::format(" {:>11}", to_string(static_cast<Event>(event)));
  }
  for (std::size_t state = 0; state < counts.size(); ++state) {
    text += fmt::format("\n{:12}", to_string(static_cast<State>(state)));
    for (const std::uint64_t count : counts[state]) text += fmt::format(" {:>11}", count);
  }
  return text + "\n";
}

template <typename State, typename Event, typename Counts>
std::string compare(const Counts& counts, const std::string_view* can_be, bool all) {
  std::string text;
  for (std::size_t state = 0; state < counts.size(); ++state) {
    for (std::size_t event = 0; event < counts[state].size(); ++event) {
      const char mark = can_be[state][event];
      const bool seen = counts[state][event] != 0;
      if (mark == 'o' || (mark == 'x' ? seen || !all : !seen)) continue;
      text += fmt::format("'{}' in '{}': {} times ({})\n", to_string(static_cast<Event>(event)),
                          to_string(static_cast<State>(state)), counts[state][event], mark);
    }
  }
  return text;
}

}  // namespace

std::string to_text(const Pairs& pairs) {
  return table<PathState, PathEvent>(pairs.paths) + table<SessionPhase, SessionEvent>(pairs.sessions);
}

std::string surprises(const Pairs& pairs, std::size_t end, bool all) {
  return compare<PathState, PathEvent>(pairs.paths, kPaths[end], all) +
         compare<SessionPhase, SessionEvent>(pairs.sessions, kSessions[end], all);
}

}  // namespace fairlead::simulation
