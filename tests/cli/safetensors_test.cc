#include "cli/models/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

namespace fairlead::cli {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A file: the length of `header`, `header`, `data` zero bytes.
std::vector<std::byte> file_of(std::string_view header, std::size_t data) {
  std::vector<std::byte> file;
  for (unsigned shift = 0; shift < 64; shift += 8)
    file.push_back(static_cast<std::byte>(header.size() >> shift & 0xff));
  for (const char c : header) file.push_back(static_cast<std::byte>(c));
  file.resize(file.size() + data);
  return file;
}

Result<SafetensorsHeader> parse(std::string_view header, std::size_t data) {
  const std::vector<std::byte> file = file_of(header, data);
  return parse_safetensors(file, file.size(), "m.safetensors");
}

// The message of a header that must be refused.
std::string refusal(std::string_view header, std::size_t data) {
  const Result<SafetensorsHeader> parsed = parse(header, data);
  EXPECT_FALSE(parsed) << header;
  if (parsed) return {};
  EXPECT_EQ(parsed.error().code(), Code::kDataLoss);
  EXPECT_THAT(parsed.error().message(), HasSubstr("m.safetensors"));
  return parsed.error().message();
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const auto parsed = parse(R"({"b":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]},)"
                            R"("a":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
                            R"("__metadata__":{"format":"pt"}}   )",
                            26);
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  ASSERT_EQ(parsed->tensors.size(), 2U);
  EXPECT_EQ(parsed->tensors[0].name, "a");
  EXPECT_EQ(parsed->tensors[0].bytes, 2U);
  EXPECT_EQ(parsed->tensors[1].dtype, "F32");
  EXPECT_THAT(parsed->tensors[1].shape, testing::ElementsAre(2, 3));
  EXPECT_EQ(parsed->tensors[1].offset, 2U);
  EXPECT_EQ(parsed->data_bytes, 26U);
  EXPECT_THAT(parsed->metadata, testing::ElementsAre(testing::Pair("format", "pt")));
}

TEST(Safetensors, EmptyTensorsAndNoTensorsAreLegal) {
  const auto parsed = parse(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                            R"("none":{"dtype":"F32","shape":[0,9223372036854775807,4],"data_offsets":[4,4]},)"
                            R"("first":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                            4);
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(parsed->tensors.size(), 3U);
  EXPECT_TRUE(parse("{}", 0));
}

// Their size is what the offsets say.
TEST(Safetensors, DtypesThatAreNotOursAreCarried) {
  for (const char* dtype : {"C64", "F4", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ", "F6_E2M3", "X17"}) {
    const auto parsed = parse(fmt::format(R"({{"a":{{"dtype":"{}","shape":[3,4],"data_offsets":[0,6]}}}})", dtype), 6);
    ASSERT_TRUE(parsed) << parsed.error().to_string();
    EXPECT_EQ(parsed->tensors[0].dtype, dtype);
    EXPECT_EQ(parsed->tensors[0].bytes, 6U);
    EXPECT_THAT(safetensors_prefix(parsed->tensors, {}), HasSubstr(dtype));
  }
}

// As the format's own writer lays it out.
TEST(Safetensors, AFileComesBackByteForByte) {
  const std::string header = R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"
                             "   ";
  ASSERT_EQ(header.size() % 8, 0U);
  const auto file = file_of(header, 8);
  const auto parsed = parse_safetensors(file, file.size(), "f");
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  const std::string prefix = safetensors_prefix(parsed->tensors, parsed->metadata);
  EXPECT_EQ(prefix, std::string(reinterpret_cast<const char*>(file.data()), file.size() - 8));
}

TEST(Safetensors, TensorsWithoutBytesKeepTheirOrder) {
  std::string header =
      R"({"z":{"dtype":"F64","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  const auto file = file_of(header, 0);
  const auto parsed = parse_safetensors(file, file.size(), "f");
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(safetensors_prefix(parsed->tensors, parsed->metadata),
            std::string(reinterpret_cast<const char*>(file.data()), file.size()));
}

TEST(Safetensors, PrefixIsReadBack) {
  const std::vector<FileTensor> tensors = {{"w", "F16", {3, 5}, 0, 30}, {"n", "I64", {}, 30, 8}};
  const std::vector<std::pair<std::string, std::string>> metadata = {{"k", "v\"\n"}};
  const std::string prefix = safetensors_prefix(tensors, metadata);
  EXPECT_EQ(prefix.size() % 8, 0U);
  const auto bytes = std::as_bytes(std::span(prefix));
  const auto parsed = parse_safetensors(bytes, prefix.size() + 38, "x");
  ASSERT_TRUE(parsed) << parsed.error().to_string();
  EXPECT_EQ(parsed->data_begin, prefix.size());
  ASSERT_EQ(parsed->tensors.size(), 2U);
  EXPECT_EQ(parsed->tensors[0].name, "w");
  EXPECT_THAT(parsed->tensors[0].shape, testing::ElementsAre(3, 5));
  EXPECT_EQ(parsed->tensors[1].offset, 30U);
  EXPECT_EQ(parsed->metadata, metadata);
}

TEST(SafetensorsBad, HeaderLength) {
  const std::vector<std::byte> seven(7);
  EXPECT_THAT(parse_safetensors(seven, 7, "f").error().message(), AllOf(HasSubstr("f"), HasSubstr("too short")));
  auto file = file_of("{}", 0);
  file[1] = std::byte{1};  // 258: beyond the end
  EXPECT_THAT(parse_safetensors(file, file.size(), "f").error().message(),
              HasSubstr("header length 258 passes the end"));
  file[7] = std::byte{0xff};
  EXPECT_THAT(parse_safetensors(file, file.size(), "f").error().message(), HasSubstr("above the limit of 100000000"));
}

TEST(SafetensorsBad, TruncatedAtEveryByte) {
  const auto file = file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_FALSE(parse_safetensors(std::span(file).first(size), size, "f")) << size;
  }
  EXPECT_TRUE(parse_safetensors(file, file.size(), "f"));
}

TEST(SafetensorsBad, Json) {
  EXPECT_THAT(refusal("{\"a\":", 0), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(" {}", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal("[]", 0), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(refusal(R"({"a":3})", 0), HasSubstr("tensor 'a': its entry is no object"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":1}})", 0), HasSubstr("__metadata__ 'k' is a number"));
  EXPECT_THAT(refusal(R"({"__metadata__":[]})", 0), HasSubstr("__metadata__ is no object"));
}

TEST(SafetensorsBad, Fields) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F 31","shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("dtype 'F 31'"));
  EXPECT_THAT(refusal(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("dtype is missing"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), HasSubstr("shape is missing"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("dimension 0"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1.0],"data_offsets":[0,4]}})", 4), HasSubstr("dimension 0"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4), HasSubstr("data_offsets"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":["0",4]}})", 4), HasSubstr("data_offsets"));
}

TEST(SafetensorsBad, ShapeBeyondTwoToThe63) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,4]}})", 4),
              HasSubstr("9223372036854775808"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","shape":[4294967296,2147483648],"data_offsets":[0,4]}})", 4),
              HasSubstr("larger than 2^63 - 1 bytes"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
              HasSubstr("larger than 2^63 - 1 bytes"));
}

TEST(SafetensorsBad, Offsets) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,5]}})", 5), HasSubstr("5 bytes do not fit"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4), HasSubstr("end before"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 4), HasSubstr("pass the end"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5), HasSubstr("hole"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 5), HasSubstr("end at byte 4"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                      R"("b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
                      7),
              AllOf(HasSubstr("tensor 'b'"), HasSubstr("overlap")));
  EXPECT_THAT(
      refusal(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[18446744073709551615,0]}})", 4),
      HasSubstr("dimension 0"));
}

TEST(SafetensorsBad, DuplicateName) {
  EXPECT_THAT(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                      2),
              HasSubstr("stands twice"));
  EXPECT_THAT(refusal(R"({"a":{"dtype":"F32","dtype":"U8","shape":[1],"data_offsets":[0,4]}})", 4),
              HasSubstr("dtype stands twice in its entry"));
  EXPECT_THAT(refusal(R"({"__metadata__":{"k":"v","k":"w"}})", 0), HasSubstr("'k' stands there twice"));
}

TEST(SafetensorsFile, ReadsAFileAndNamesOneThatIsMissing) {
  const std::string path = testing::TempDir() + "fairlead_safetensors_test.safetensors";
  const auto file = file_of(R"({"a":{"dtype":"U8","shape":[70000],"data_offsets":[0,70000]}})", 70'000);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(file.data()), static_cast<long>(file.size()));
  const auto parsed = read_safetensors(path);
  EXPECT_TRUE(parsed) << parsed.error().to_string();
  std::remove(path.c_str());
  const auto missing = read_safetensors(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(missing.error().message(), HasSubstr(path));
  EXPECT_EQ(read_safetensors("/").error().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace fairlead::cli
