// Requests and answers: messages in both directions, in a loop that polls other descriptors as well.
//
//   answer_messages [--listen HOST:PORT]    answers every message with its text in capitals, until SIGINT or SIGTERM
//   answer_messages HOST:PORT               asks 1,000 times, sixteen questions at a time, and compares the answers
//
// Engine::event_fd() goes into poll() beside the program's own descriptors, here one for signals. It is readable while
// the engine has something to hand over, so each turn takes all that accept(), next_event() and next_completed() have.
#include <poll.h>
#include <sys/signalfd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "fairlead/engine.h"

namespace {

constexpr std::uint64_t kQuestions = 1000, kAtATime = 16;
constexpr char kHelp[] =
    "usage: answer_messages [--transport T] [--listen HOST:PORT]   answer until SIGINT or SIGTERM\n"
    "       answer_messages [--transport T] HOST:PORT              ask there, 1,000 times\n"
    "--transport  auto, shm, tcp, verbs or verbs:DEVICE (default: auto)\n"
    "--listen     where to answer (default: 127.0.0.1:0, any free port)\n";

int fail(const fairlead::Status& status) {
  std::fprintf(stderr, "answer_messages: %s\n", status.to_string().c_str());
  return 1;
}

std::string text_of(const fairlead::Event& event) {
  return {reinterpret_cast<const char*>(event.data.data()), event.data.size()};
}

std::string in_capitals(std::string text) {
  for (char& letter : text) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return text;
}

// The number says which question it is, or answers. Reported, so that next_completed() tells if it did not arrive.
void send(fairlead::Peer& peer, std::uint64_t number, const std::string& text) {
  peer.send(std::as_bytes(std::span(text)), number, {.report = true});
}

// Waits for the engine. False: a signal is there or, without `signals`, nothing came for a minute.
bool wait_for_engine(const fairlead::Engine& engine, int signals) {
  pollfd ready[] = {{engine.event_fd(), POLLIN, 0}, {signals, POLLIN, 0}};
  const int count = poll(ready, 2, signals < 0 ? 60'000 : -1);  // poll() ignores a descriptor below 0
  return count > 0 && ready[1].revents == 0;
}

int answer(const fairlead::EngineConfig& config) {
  sigset_t ending;  // blocked before there are threads, so that the descriptor alone gets them
  sigemptyset(&ending);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGTERM);
  sigprocmask(SIG_BLOCK, &ending, nullptr);
  const int signals = signalfd(-1, &ending, SFD_CLOEXEC);
  auto engine = fairlead::Engine::create(config);
  if (!engine) return fail(engine.error());
  std::printf("listening on %s\n", engine->listen_address().c_str());
  std::fflush(stdout);

  std::uint64_t peers = 0, answers = 0, unanswered = 0;
  while (wait_for_engine(*engine, signals)) {
    while (engine->accept()) ++peers;
    for (;;) {
      auto [peer, event] = engine->next_event();
      if (event.kind == fairlead::Event::Kind::kNone) break;
      if (event.kind == fairlead::Event::Kind::kMessage) send(peer, event.value, in_capitals(text_of(event)));
    }
    while (auto sent = engine->next_completed()) ++(sent->code() == fairlead::Code::kOk ? answers : unanswered);
  }
  std::printf("%llu peers, %llu answers, %llu lost\n", static_cast<unsigned long long>(peers),
              static_cast<unsigned long long>(answers), static_cast<unsigned long long>(unanswered));
  return 0;
}

int ask(const fairlead::EngineConfig& config, const std::string& address) {
  auto engine = fairlead::Engine::create(config);
  if (!engine) return fail(engine.error());
  auto peer = engine->connect(address);
  if (!peer) return fail(peer.error());
  if (auto status = peer->wait_ready(); !status.ok()) return fail(status);

  const auto question = [](std::uint64_t number) { return "how are you, number " + std::to_string(number) + "?"; };
  std::uint64_t asked = 0, answered = 0;
  while (answered < kQuestions) {
    for (; asked < kQuestions && asked - answered < kAtATime; ++asked) send(*peer, asked, question(asked));
    if (!wait_for_engine(*engine, -1)) return fail({fairlead::Code::kDeadlineExceeded, address + " does not answer"});
    for (;;) {
      auto [from, event] = engine->next_event();
      if (event.kind == fairlead::Event::Kind::kNone) break;
      if (event.kind == fairlead::Event::Kind::kClosed) {
        return fail({fairlead::Code::kUnavailable, address + " ended the session: " + event.status.to_string()});
      }
      if (event.kind != fairlead::Event::Kind::kMessage) continue;
      if (event.value != answered || text_of(event) != in_capitals(question(answered))) {
        return fail({fairlead::Code::kDataLoss, "question " + std::to_string(answered) + " has another's answer"});
      }
      ++answered;
    }
    while (auto sent = engine->next_completed()) {
      if (sent->code() != fairlead::Code::kOk) return fail(sent->status());
    }
  }
  std::printf("%llu answers over %s\n", static_cast<unsigned long long>(answered), peer->transport().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  fairlead::EngineConfig config;
  std::string listen = "127.0.0.1:0", address;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--help") {
      std::fputs(kHelp, stdout);
      return 0;
    }
    if (words[i] == "--transport" && has_value) {
      config.transport = words[++i];
    } else if (words[i] == "--listen" && has_value) {
      listen = words[++i];
    } else if (!words[i].starts_with("-") && address.empty()) {
      address = words[i];
    } else {
      std::fprintf(stderr, "answer_messages: '%s' is not understood\n%s", words[i].c_str(), kHelp);
      return 2;
    }
  }
  if (!address.empty()) return ask(config, address);
  config.listen = listen;
  return answer(config);
}
