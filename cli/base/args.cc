#include "cli/base/args.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "cli/base/familiar_flags.h"
#include "cli/base/settings_file.h"

namespace fairlead::cli {
namespace {

// "--tcp-port" -> "FAIRLEAD_TCP_PORT": the name of the first flag.
std::string environment_name(const std::string& names) {
  std::string name = "FAIRLEAD_";
  for (const char c : names.substr(2, names.find(',') - 2)) {
    name.push_back(c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c))));
  }
  return name;
}

bool asks_for_help(std::span<const char* const> words) {
  return std::ranges::any_of(words, [](std::string_view word) { return word == "--help" || word == "-h"; });
}

// Letters to put in, leave out or exchange (Levenshtein).
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (const char letter : from) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t exchanged = diagonal + (letter == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({exchanged, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

struct Args::Impl {
  struct FromEnvironment {
    CLI::Option* option;
    std::string variable;  // empty: only the command line and a file set it
    Setter setter;
  };

  std::string command;
  CLI::App app;
  std::vector<FromEnvironment> environment;
  std::vector<std::string> required;  // CLI11 would complain of these before it does of a flag it does not know
  std::vector<std::function<std::string()>> rules;
  bool takes_file = false;
  std::string strangers;  // "; " and what to do with words that are not known, if that is said

  // A setter's refusal leaves CLI11's parse as an exception and is reported by parse().
  void apply(const std::string& name, const Setter& setter, const std::string& text) {
    const Status status = setter(text);
    if (!status.ok()) throw CLI::ValidationError(name, status.message());
  }

  void add_option(const std::string& names, const std::string& value, std::string help, Setter setter,
                  const std::string& variable) {
    const bool names_file = value == "FILE" && names != "--config";  // FAIRLEAD_CONFIG may be empty: there is none
    if (names_file) setter = unless_empty(std::move(setter));
    if (!variable.empty()) help += " [" + variable + "]";
    CLI::Option* option = app.add_option_function<std::string>(
        names, [this, names, setter](const std::string& text) { apply(names, setter, text); }, std::move(help));
    option->type_name(value)->take_last();
    environment.push_back({option, variable, std::move(setter)});
  }

  CLI::Option* add_switch(const std::string& names, const Setter& setter, std::string help) {
    CLI::Option* option = app.add_option_function<std::string>(
        names, [this, names, setter](const std::string& text) { apply(names, setter, text); }, std::move(help));
    return option->type_name("")->take_last()->expected(0);  // by itself it is "true"
  }

  // Before flags and environment, which say otherwise.
  [[nodiscard]] Status apply_file(const std::string& path) const {
    const Result<std::vector<Setting>> settings = load_settings(path);
    if (!settings) return settings.error();
    const auto setting = [&](const std::string& name) {
      return std::ranges::find_if(
          environment, [&](const FromEnvironment& each) { return each.option->check_lname(name) && name != "config"; });
    };
    std::vector<std::string> others;  // that are not known, behind the first
    for (const auto& [name, value, line] : *settings) {
      if (setting(name) == environment.end()) others.push_back(fmt::format("'{}' (line {})", name, line));
    }
    if (!others.empty()) others.erase(others.begin());
    for (const auto& [name, value, line] : *settings) {
      const auto known = setting(name);
      Status status;
      if (known == environment.end()) {
        const std::string more = others.empty() ? "" : fmt::format(", nor {}", fmt::join(others, ", "));
        status = {Code::kInvalidArgument,
                  fmt::format("there is no setting '{}' of `fairlead {}`{}: remove or correct {}. Legal: {}", name,
                              command, more, others.empty() ? "it" : "them", names())};
      } else if (const Status set = known->setter(value); !set.ok()) {
        status = {set.code(), fmt::format("{}: {}", name, set.message())};
      }
      if (!status.ok()) return {status.code(), fmt::format("{}, line {}: {}", path, line, status.message())};
    }
    return {};
  }

  [[nodiscard]] std::string names() const {
    std::vector<std::string> all;
    for (const FromEnvironment& each : environment) {
      for (const std::string& name : each.option->get_lnames()) all.push_back(name);
    }
    std::erase(all, "config");
    return fmt::format("{}", fmt::join(all, ", "));
  }

  // CLI11 takes the word behind an unknown flag for a positional, and then complains of that.
  [[nodiscard]] std::string unknown_flag(std::span<const char* const> words) const {
    for (const std::string_view word : words) {
      if (word == "--") break;
      const std::string name(word.substr(0, word.find('=')));
      const bool is_short = name.size() > 1 && name[0] == '-' && std::isalpha(static_cast<unsigned char>(name[1])) != 0;
      if ((is_short || name.starts_with("--")) && app.get_option_no_throw(name) == nullptr) return name;
    }
    return {};
  }

  // CLI11 says that a flag has no value, and not what it takes.
  [[nodiscard]] std::string missing_value(const std::string& said) const {
    const CLI::Option* const option = app.get_option_no_throw(said.substr(0, said.find(':')));
    if (option == nullptr || !said.ends_with(" missing")) return said;
    const std::string& help = option->get_description();
    return fmt::format("{}: {} is missing: {}", option->get_name(), option->get_type_name(),
                       help.substr(0, help.rfind(" [")));
  }

  // What is most like it, or does what it does elsewhere, if that is likely meant.
  [[nodiscard]] std::string nearest(const std::string& flag) {
    const std::string familiar = familiar_flag(
        flag, [this](std::string_view name) { return app.get_option_no_throw(std::string(name)) != nullptr; });
    if (!familiar.empty()) return "; here that is " + familiar;
    if (!flag.starts_with("--")) return "";
    std::string name;
    std::size_t least = 1 + std::max<std::size_t>(2, flag.size() / 4);
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& known : option->get_lnames()) {
        const std::size_t distance = edit_distance(flag, "--" + known);
        if (distance >= least) continue;
        least = distance;
        name = "--" + known;
      }
    }
    return name.empty() ? "" : fmt::format("; did you mean {}?", name);
  }
};

Args::Args(std::string command, std::string summary, std::string examples) : impl_(std::make_unique<Impl>()) {
  impl_->command = std::move(command);
  impl_->app.name("fairlead " + impl_->command);
  impl_->app.description(std::move(summary));
  impl_->app.footer(std::move(examples));
  impl_->app.set_help_flag("-h,--help", "Print this help and exit");
  impl_->app.get_formatter()->column_width(34);
}

Args::~Args() = default;

void Args::option(const std::string& names, const std::string& value, std::string help, Setter setter) {
  impl_->add_option(names, value, std::move(help), std::move(setter), environment_name(names));
}

void Args::option_by_itself(const std::string& names, const std::string& value, std::string help, Setter setter) {
  impl_->add_option(names, value, std::move(help), std::move(setter), "");
}

void Args::flag(const std::string& names, bool* target, std::string help) {
  const std::string variable = environment_name(names);
  const Setter setter = set_switch(target);
  CLI::Option* option = impl_->add_switch(names, setter, std::move(help) + " [" + variable + "]");
  impl_->environment.push_back({option, variable, setter});
}

void Args::flag_by_itself(const std::string& names, bool* target, std::string help) {
  impl_->add_switch(names, set_switch(target), std::move(help));
}

void Args::positional(const std::string& value, std::string help, Setter setter, bool required) {
  impl_->app
      .add_option_function<std::string>(
          value,
          [impl = impl_.get(), value, setter = std::move(setter)](const std::string& text) {
            impl->apply(value, setter, text);
          },
          std::move(help))
      ->type_name(required ? "(required)" : "");
  if (required) impl_->required.push_back(value);
}

void Args::positionals(const std::string& value, std::string help, Setter setter) {
  impl_->app
      .add_option_function<std::vector<std::string>>(
          value,
          [impl = impl_.get(), value, setter = std::move(setter)](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) impl->apply(value, setter, text);
          },
          std::move(help))
      ->type_name("");
}

void Args::strangers(std::string remedy) { impl_->strangers = "; " + std::move(remedy); }

void Args::settings_file() {
  impl_->takes_file = true;
  option("--config", "FILE",
         "Settings, a line NAME = VALUE for each, with the names of these flags; flags and the "
         "environment say otherwise",
         [](std::string_view) { return Status(); });  // parse() has read it by then
}

bool Args::given(const std::string& name) const { return impl_->app.get_option(name)->count() != 0; }

void Args::rule(std::function<std::string()> wrong) { impl_->rules.push_back(std::move(wrong)); }

std::optional<int> Args::parse(std::span<const char* const> words) {
  if (const std::string flag = impl_->unknown_flag(words); !flag.empty()) {
    return usage_error(fmt::format("there is no flag {}{}{}", flag, impl_->nearest(flag), impl_->strangers));
  }
  if (impl_->takes_file && !asks_for_help(words)) {
    const std::optional<std::string> file = settings_path(words);
    if (file && file->empty()) return usage_error("--config names no file");
    if (const Status status = file ? impl_->apply_file(*file) : Status(); !status.ok()) {
      return usage_error(status.message());
    }
  }
  std::vector<std::string> reversed(words.rbegin(), words.rend());  // what CLI11 takes
  try {
    impl_->app.parse(std::move(reversed));
    for (const auto& [option, variable, setter] : impl_->environment) {
      const char* text = variable.empty() ? nullptr : std::getenv(variable.c_str());
      if (option->count() == 0 && text != nullptr) impl_->apply("environment variable " + variable, setter, text);
    }
    for (const std::string& name : impl_->required) {
      if (impl_->app.get_option(name)->count() == 0) return usage_error(name + " is missing");
    }
    for (const auto& rule : impl_->rules) {
      if (const std::string wrong = rule(); !wrong.empty()) return usage_error(wrong);
    }
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", impl_->app.help());
    return kSuccess;
  } catch (const CLI::ArgumentMismatch& error) {
    return usage_error(impl_->missing_value(error.what()));
  } catch (const CLI::ExtrasError&) {
    return usage_error(fmt::format("too many words: {}{}", fmt::join(impl_->app.remaining(), " "), impl_->strangers));
  } catch (const CLI::Error& error) {
    return usage_error(error.what());
  }
  return std::nullopt;
}

int Args::usage_error(std::string_view message) const {
  fmt::print(stderr, "fairlead {}: {}\nTry 'fairlead {} --help'.\n", impl_->command, message, impl_->command);
  return kUsage;
}

}  // namespace fairlead::cli
