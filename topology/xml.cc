#include "topology/xml.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>

#include "base/svg.h"

namespace fairlead::topology {
namespace {

constexpr std::size_t kDeepest = 256;
constexpr std::size_t kMostElements = std::size_t{1} << 20;
constexpr std::size_t kMostAttributes = 256;  // of an element: each is compared with those before it
constexpr std::string_view kBlank = " \t\r\n";

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == ':';
}

/// Every method that can fail leaves the reason in `wrong_` and returns false.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<XmlElement> document() {
    XmlElement root;
    const bool read = take_misc(true) && element(&root, 0) && take_misc(false) && (at_ == text_.size() || fail_junk());
    if (read) return root;
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at_), '\n') + 1;
    return Status(Code::kDataLoss, fmt::format("line {}: {}", line, wrong_));
  }

 private:
  bool fail(std::string why) {
    if (wrong_.empty()) wrong_ = std::move(why);
    return false;
  }
  bool fail_junk() { return fail("something follows the root element"); }
  [[nodiscard]] bool looking_at(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool skip_blanks() {
    const std::size_t before = at_;
    at_ = std::min(text_.find_first_not_of(kBlank, at_), text_.size());
    return at_ != before;
  }
  bool skip_past(std::string_view end, std::string_view what) {
    const std::size_t found = text_.find(end, at_);
    if (found == std::string_view::npos) return fail(fmt::format("{} does not end: the file is cut off", what));
    at_ = found + end.size();
    return true;
  }

  // What may stand before and after the root: blanks, comments, <?...?>, and before it one <!DOCTYPE.
  bool take_misc(bool before_root) {
    if (before_root && looking_at("\xEF\xBB\xBF")) at_ += 3;
    for (;;) {
      skip_blanks();
      if (looking_at("<!--")) {
        if (!skip_past("-->", "a comment")) return false;
      } else if (looking_at("<?")) {
        if (!skip_past("?>", "a processing instruction")) return false;
      } else if (before_root && looking_at("<!DOCTYPE")) {
        const std::size_t begin = at_;
        if (!skip_past(">", "<!DOCTYPE")) return false;
        // Entities are how a small file becomes a large one, or names others; hwloc writes none.
        if (text_.substr(begin, at_ - begin).find('[') != std::string_view::npos) {
          return fail("<!DOCTYPE with declarations of its own is not read");
        }
      } else {
        return true;
      }
    }
  }

  bool name(std::string* out) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_name(text_[at_])) ++at_;
    *out = text_.substr(begin, at_ - begin);
    return !out->empty() || fail(at_ >= text_.size() ? "the file is cut off" : "a name is missing");
  }

  bool attributes(XmlElement* element) {
    for (;;) {
      const bool apart = skip_blanks();
      if (at_ == text_.size()) return fail(fmt::format("<{}> is cut off", element->name));
      if (text_[at_] == '>' || text_[at_] == '/') return true;
      if (!apart) return fail(fmt::format("attributes of <{}> are not separated", element->name));
      if (element->attributes.size() == kMostAttributes) {
        return fail(fmt::format("<{}> has more than {} attributes", element->name, kMostAttributes));
      }
      std::string key;
      if (!name(&key)) return false;
      if (element->attribute(key) != nullptr) return fail(fmt::format("<{}> has {} twice", element->name, key));
      skip_blanks();
      if (at_ == text_.size()) return fail(fmt::format("<{}> is cut off", element->name));
      if (!looking_at("=")) return fail(fmt::format("attribute {} of <{}> has no value", key, element->name));
      ++at_;
      skip_blanks();
      if (at_ == text_.size()) return fail(fmt::format("<{}> is cut off", element->name));
      const char quote = at_ < text_.size() ? text_[at_] : '\0';
      if (quote != '"' && quote != '\'') return fail(fmt::format("the value of {} is not quoted", key));
      const std::size_t begin = ++at_;
      if (!skip_past({&quote, 1}, "the value of " + key)) return false;
      std::string value(text_.substr(begin, at_ - 1 - begin));
      if (value.find('<') != std::string::npos || value.find('\0') != std::string::npos) {
        return fail(fmt::format("the value of {} holds what it must not, or its quote is missing", key));
      }
      for (std::size_t quoted = 0; (quoted = value.find('"', quoted)) != std::string::npos;) {
        value.replace(quoted, 1, "&quot;");  // to_xml writes double quotes around it
      }
      element->attributes.emplace_back(std::move(key), std::move(value));
    }
  }

  bool element(XmlElement* out, std::size_t depth) {
    if (depth > kDeepest) return fail(fmt::format("elements are nested beyond {}", kDeepest));
    if (++elements_ > kMostElements) return fail(fmt::format("there are more than {} elements", kMostElements));
    if (!looking_at("<")) return fail(at_ == text_.size() ? "there is no element" : "this is not XML: '<' is missing");
    ++at_;
    if (!name(&out->name) || !attributes(out)) return false;
    if (looking_at("/>")) {
      at_ += 2;
      return true;
    }
    if (!looking_at(">")) return fail(fmt::format("<{}> does not end", out->name));
    ++at_;
    return content(out, depth);
  }

  bool content(XmlElement* out, std::size_t depth) {
    for (;;) {
      const std::size_t next = text_.find('<', at_);
      if (next == std::string_view::npos) {
        at_ = text_.size();
        return fail(fmt::format("<{}> is not closed: the file is cut off", out->name));
      }
      out->text.append(text_.substr(at_, next - at_));
      at_ = next;
      if (looking_at("</")) return closing(out->name);
      if (looking_at("<!--")) {
        if (!skip_past("-->", "a comment")) return false;
      } else if (looking_at("<!") || looking_at("<?")) {
        return fail("CDATA and declarations are not read within elements");
      } else if (!element(&out->children.emplace_back(), depth + 1)) {
        return false;
      }
    }
  }

  bool closing(const std::string& open) {
    at_ += 2;
    std::string closed;
    if (!name(&closed)) return false;
    if (closed != open) return fail(fmt::format("</{}> closes <{}>", closed, open));
    skip_blanks();
    if (!looking_at(">")) return fail(fmt::format("</{}> does not end", closed));
    ++at_;
    return true;
  }

  std::string_view text_;
  std::size_t at_ = 0, elements_ = 0;
  std::string wrong_;
};

void write(const XmlElement& element, std::size_t depth, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "{:{}}<{}", "", 2 * depth, element.name);
  for (const auto& [name, value] : element.attributes) {
    fmt::format_to(std::back_inserter(*out), " {}=\"{}\"", name, value);
  }
  if (!element.children.empty()) {
    *out += ">\n";
    for (const XmlElement& child : element.children) write(child, depth + 1, out);
    fmt::format_to(std::back_inserter(*out), "{:{}}</{}>\n", "", 2 * depth, element.name);
  } else if (element.text.find_first_not_of(kBlank) != std::string::npos) {
    fmt::format_to(std::back_inserter(*out), ">{}</{}>\n", element.text, element.name);
  } else {
    *out += "/>\n";
  }
}

template <typename Element>
auto* find_attribute(Element& element, std::string_view wanted) {
  const auto found = std::find_if(element.attributes.begin(), element.attributes.end(),
                                  [wanted](const auto& attribute) { return attribute.first == wanted; });
  return found == element.attributes.end() ? nullptr : &found->second;
}

}  // namespace

const std::string* XmlElement::attribute(std::string_view wanted) const noexcept {
  return find_attribute(*this, wanted);
}

std::string* XmlElement::attribute(std::string_view wanted) noexcept { return find_attribute(*this, wanted); }

Result<XmlElement> parse_xml(std::string_view text) { return Parser(text).document(); }

std::string to_xml(const XmlElement& element) {
  std::string out;
  write(element, 0, &out);
  return out;
}

}  // namespace fairlead::topology
