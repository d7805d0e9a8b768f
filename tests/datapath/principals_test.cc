// Keys files, audiences, and the keyed hash.
#include "datapath/identity/principals.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "datapath/identity/hmac.h"

namespace fairlead::datapath {
namespace {

using testing::HasSubstr;

const std::string kKey(64, 'a');

std::string words(const Result<Principals>& result) { return result ? "" : result.error().to_string(); }

// Computed by Python's hmac, each part behind its length as 8 bytes, little-endian.
TEST(Hmac, IsThatOfOthers) {
  std::vector<std::byte> key;
  for (int i = 0; i < 32; ++i) key.push_back(static_cast<std::byte>(i));
  const std::optional<Digest> digest = hmac_sha256(key, {"one", "", "three"});
  ASSERT_TRUE(digest);
  std::string hex;
  for (const char byte : *digest) {
    constexpr const char* kDigits = "0123456789abcdef";
    hex += {kDigits[static_cast<unsigned char>(byte) >> 4], kDigits[static_cast<unsigned char>(byte) & 15]};
  }
  EXPECT_EQ(hex, "4becb7579bdac6e368ed3d8ac6502d70bccb93ac0fa9e9957eb16bfac68d427b");
  EXPECT_TRUE(is_digest(*digest, {digest->data(), digest->size()}));
  EXPECT_FALSE(is_digest(*digest, {digest->data(), digest->size() - 1}));
  EXPECT_FALSE(is_digest(*digest, std::string(digest->size(), 'x')));
  EXPECT_NE(hmac_sha256(key, {"o", "ne", "three"}), digest) << "the same bytes in other parts";
  EXPECT_NE(hmac_sha256(std::span(key).first(31), {"one", "", "three"}), digest);
}

TEST(Principals, AreReadFromLines) {
  const auto known =
      Principals::parse("# who\n\n trainer\t" + kKey + " # its key\r\nserver.7@x " + kKey.substr(32), "f");
  ASSERT_TRUE(known) << words(known);
  ASSERT_NE(known->key_of("trainer"), nullptr);
  EXPECT_EQ(known->key_of("trainer")->size(), 32U);
  EXPECT_EQ(known->key_of("trainer")->front(), std::byte{0xaa});
  EXPECT_EQ(known->key_of("server.7@x")->size(), 16U);
  EXPECT_EQ(known->key_of("who"), nullptr);
  EXPECT_EQ(known->key_of(""), nullptr);
}

TEST(Principals, BadLinesAreNamedAndKeysAreNot) {
  for (const auto& [line, why] : {std::pair<std::string, std::string>{"a", "needs a key"},
                                  {"a " + kKey.substr(0, 30), "32 to 128 hexadecimal digits"},
                                  {"a " + kKey + kKey + "aa", "32 to 128 hexadecimal digits"},
                                  {"a " + kKey + "a", "needs a key"},
                                  {"a " + kKey.substr(1) + "g", "needs a key"},
                                  {"a " + kKey + " b", "nothing else"},
                                  {"* " + kKey, "a name has 1 to 64 letters"},
                                  {std::string(65, 'n') + " " + kKey, "this one has 65"},
                                  {"b " + kKey + "\nb " + kKey, "twice"}}) {
    const auto known = Principals::parse("ok " + kKey + "\n" + line + "\n", "the-file");
    ASSERT_FALSE(known) << line;
    EXPECT_EQ(known.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(known.error().message(), testing::AllOf(HasSubstr("the-file, line "), HasSubstr(why)));
    EXPECT_THAT(known.error().message(), testing::Not(HasSubstr("aaaa")));
  }
  EXPECT_THAT(words(Principals::parse("# nobody\n", "f")),
              HasSubstr("names nobody; `fairlead key NAME >> f` adds one"));
  std::string many;
  for (std::size_t i = 0; i <= Principals::kMost; ++i) many += "n" + std::to_string(i) + " " + kKey + "\n";
  EXPECT_THAT(words(Principals::parse(many, "f")), HasSubstr("line 4097: more than 4096 principals"));
}

TEST(Principals, AreOfAFileThatIsNobodyElses) {
  const std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("fairlead-keys-" + std::to_string(::getpid()));
  EXPECT_EQ(Principals::load(path).error().code(), Code::kNotFound);
  std::ofstream(path) << "a " << kKey << "\n";
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  EXPECT_EQ(Principals::load(path).error().code(), Code::kPermissionDenied);
  EXPECT_THAT(words(Principals::load(path)), HasSubstr("has mode 0640: others may get at the keys; chmod 600"));
  ASSERT_EQ(::chmod(path.c_str(), 0600), 0);
  EXPECT_TRUE(Principals::load(path)) << words(Principals::load(path));
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(path.c_str(), 4242, 0), 0);
    EXPECT_THAT(words(Principals::load(path)), HasSubstr("is uid 4242's"));
  }
  std::filesystem::resize_file(path, (std::size_t{1} << 20) + 1);
  ASSERT_TRUE(::geteuid() != 0 || ::chown(path.c_str(), 0, 0) == 0);
  EXPECT_THAT(words(Principals::load(path)), HasSubstr("more than 1048576 bytes"));
  std::filesystem::remove(path);
  EXPECT_THAT(words(Principals::load(path.parent_path())), HasSubstr("is no file"));
}

TEST(Audience, IsWhoItNames) {
  const std::vector<std::string> everybody, two{"a", "b"}, known{"*"};
  for (const char* who : {"", "a", "b", "c"}) EXPECT_TRUE(is_among(who, everybody));
  EXPECT_TRUE(is_among("b", two));
  EXPECT_FALSE(is_among("c", two));
  EXPECT_FALSE(is_among("", two));
  EXPECT_TRUE(is_among("c", known));
  EXPECT_FALSE(is_among("", known));
  const auto principals = Principals::parse("a " + kKey, "f");
  EXPECT_TRUE(principals->check_audience(std::vector<std::string>{"a", "*"}).ok());
  EXPECT_THAT(principals->check_audience(two).message(), HasSubstr("names 'b'"));
}

}  // namespace
}  // namespace fairlead::datapath
