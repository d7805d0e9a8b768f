#include "cli/models/model_disk.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>

#include "base/crc.h"
#include "base/principal_name.h"
#include "bench/base/file_output.h"

namespace fairlead::cli {
namespace {

using bench::file_error;
namespace fs = std::filesystem;

constexpr std::string_view kAll = "all", kOf = "of-", kModel = ".model", kDraft = ".draft";
constexpr std::string_view kMagic = "FLMODEL1";
constexpr std::uint64_t kAlign = 4096;
constexpr std::size_t kMostDescription = std::size_t{256} << 20;
constexpr std::size_t kPiece = std::size_t{16} << 20;
static_assert(std::endian::native == std::endian::little, "numbers in files are little-endian");

struct Head {
  std::array<char, 8> magic;
  std::uint32_t bytes, crc;  // of the description
};

std::uint64_t data_begin(std::uint64_t description) {
  return (sizeof(Head) + description + kAlign - 1) / kAlign * kAlign;
}

Status write_all(int fd, const fs::path& path, std::span<const std::byte> bytes, std::uint64_t offset,
                 const std::stop_token& stop) {
  while (!bytes.empty()) {
    if (stop.stop_requested()) return {Code::kCancelled, fmt::format("{} was not written to its end", path.native())};
    const ssize_t done = ::pwrite(fd, bytes.data(), std::min(bytes.size(), kPiece), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return file_error("write", path.native(), errno);
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

Status damaged(const fs::path& path, std::string_view what) {
  return {Code::kDataLoss, fmt::format("{} is damaged: {}", path.native(), what)};
}

Status stopped(const fs::path& path) {
  return {Code::kCancelled, fmt::format("{} was not read to its end", path.native())};
}

Status read_all(int fd, const fs::path& path, std::span<std::byte> bytes, std::uint64_t offset,
                const std::function<bool()>& stop = {}) {
  while (!bytes.empty()) {
    if (stop && stop()) return stopped(path);
    const ssize_t done = ::pread(fd, bytes.data(), std::min(bytes.size(), kPiece), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EIO) return damaged(path, "the disk does not give its bytes");
    if (done < 0) return file_error("read", path.native(), errno);
    if (done == 0) return damaged(path, "it is shorter than it says");
    offset += static_cast<std::uint64_t>(done);
    bytes = bytes.subspan(static_cast<std::size_t>(done));
  }
  return {};
}

Status sync_folder(const fs::path& folder) {
  const UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot (EINVAL): the name is then as safe as they make it.
  if (fd && (::fsync(fd.get()) == 0 || errno == EINVAL)) return {};
  return file_error("write to the disk", folder.native(), errno);
}

/// Calls `each` for every entry of a folder, as far as it can be read.
template <typename Each>
std::error_code for_each_entry(const fs::path& folder, Each each) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) each(*at);
  return error;
}

/// Whose models lie in a folder of this name; nothing: it is none of ours.
std::optional<std::string> owner_of(std::string_view folder) {
  if (folder == kAll) return std::string();
  if (!folder.starts_with(kOf) || !is_principal_name(folder.substr(kOf.size()))) return std::nullopt;
  return std::string(folder.substr(kOf.size()));
}

/// MODEL.NUMBER.draft, as write() names what it has not finished.
bool is_draft(const fs::path& path) {
  const fs::path numbered = path.stem();
  const std::string number = numbered.extension();
  return path.extension() == kDraft && number.size() > 1 &&
         std::all_of(number.begin() + 1, number.end(), [](char c) { return c >= '0' && c <= '9'; }) &&
         check_model_name(numbered.stem().native()).ok();
}

/// What a server that was killed left half written.
void remove_drafts(const fs::path& folder) {
  for_each_entry(folder, [](const fs::directory_entry& entry) {
    std::error_code ignored;
    if (is_draft(entry.path())) fs::remove(entry.path(), ignored);
  });
}

void append(std::vector<std::byte>& out, const PushMessage& message) {
  const std::vector<std::byte> bytes = encode(message);
  const auto length = static_cast<std::uint32_t>(bytes.size());
  const auto raw = std::as_bytes(std::span(&length, 1));
  out.insert(out.end(), raw.begin(), raw.end());
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::vector<std::byte> describe(const Model& model) {
  std::vector<TensorEntry> entries = model.entries;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (!entries[i].crc) entries[i].crc = entries[i].tensor.bytes == 0 ? 0 : crc32(model.tensor(i).bytes());
  }
  std::vector<std::byte> out;
  append(out, PushBegin{model.name, model.files.size(), entries.size(), model.bytes});
  for (const ModelFile& file : model.files) append(out, file);
  for (const TensorBatch& batch : make_batches(entries)) append(out, batch);
  return out;
}

struct Description {
  std::optional<PushBegin> begin;
  std::vector<ModelFile> files;
  std::vector<TensorEntry> entries;
};

// What the CRC of the description vouches for was written by a server; what does not add up was not, and is refused.
Result<Description> parse_description(std::span<const std::byte> bytes, const fs::path& path,
                                      std::uint64_t file_bytes) {
  Description all;
  while (!bytes.empty()) {
    std::uint32_t length = 0;
    if (bytes.size() < sizeof length) return damaged(path, "its description ends in the middle");
    std::memcpy(&length, bytes.data(), sizeof length);
    bytes = bytes.subspan(sizeof length);
    if (length > bytes.size()) return damaged(path, "its description ends in the middle");
    Result<PushMessage> message = decode(bytes.first(length));
    bytes = bytes.subspan(length);
    if (!message) return damaged(path, message.error().message());
    if (auto* const begin = std::get_if<PushBegin>(&*message); begin != nullptr && !all.begin) {
      all.begin = std::move(*begin);
    } else if (auto* const file = std::get_if<ModelFile>(&*message)) {
      all.files.push_back(std::move(*file));
    } else if (auto* const batch = std::get_if<TensorBatch>(&*message)) {
      std::ranges::move(batch->entries, std::back_inserter(all.entries));
    } else {
      return damaged(path, "its description holds what none does");
    }
  }
  std::uint64_t tensors = 0;
  for (const ModelFile& file : all.files) tensors += file.tensors;
  for (const TensorEntry& entry : all.entries) {
    if (entry.tensor.bytes > file_bytes) return damaged(path, "it is shorter than it says");
  }
  if (!all.begin || all.files.size() != all.begin->files || all.entries.size() != all.begin->tensors ||
      tensors != all.begin->tensors) {
    return damaged(path, "its description does not add up");
  }
  return all;
}

Status check_tensors(const Model& model, const fs::path& path, const std::function<bool()>& stop) {
  for (std::size_t i = 0; i < model.entries.size(); ++i) {
    const TensorEntry& entry = model.entries[i];
    std::span<const std::byte> left;
    if (entry.tensor.bytes != 0) left = model.tensor(i).bytes();
    std::uint32_t found = 0;
    for (; !left.empty(); left = left.subspan(std::min(left.size(), kPiece))) {
      if (stop && stop()) return stopped(path);
      found = crc32(left.first(std::min(left.size(), kPiece)), found);
    }
    if (entry.crc != found) {
      return damaged(path,
                     fmt::format("tensor {} does not have the CRC-32 that was written with it", entry.tensor.name));
    }
  }
  return {};
}

}  // namespace

ModelDisk::Draft::~Draft() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

Result<std::unique_ptr<ModelDisk>> ModelDisk::open(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) {
    if (Status synced = sync_folder(fs::path(folder) / ".."); !synced.ok()) return synced;
  } else if (errno != EEXIST) {
    return file_error("create", folder, errno);
  }
  UniqueFd lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock) return file_error("open", folder, errno);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return file_error("lock", folder, errno);
    return Status(Code::kAlreadyExists,
                  fmt::format("another server keeps its models in {}; end it, or name another --store", folder));
  }
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return file_error("write to", folder, errno);
  for_each_entry(folder, [](const fs::directory_entry& entry) {
    if (owner_of(entry.path().filename().native())) remove_drafts(entry.path());
  });
  return std::unique_ptr<ModelDisk>(new ModelDisk(folder, std::move(lock)));
}

fs::path ModelDisk::folder_of(const std::string& owner) const {
  return folder_ / (owner.empty() ? std::string(kAll) : std::string(kOf) + owner);
}

fs::path ModelDisk::path_of(const Model& model) const {
  return folder_of(model.owner) / (model.name + std::string(kModel));
}

Result<ModelDisk::Draft> ModelDisk::write(const Model& model, const std::stop_token& stop) {
  const fs::path folder = folder_of(model.owner);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return file_error("create", folder.native(), errno);
  // Also where it was there: another push, or a server that was killed, may have made it just now.
  if (Status synced = sync_folder(folder_); !synced.ok()) return synced;
  const fs::path path = folder / fmt::format("{}.{}{}", model.name, drafts_.fetch_add(1), kDraft);
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd) return file_error("create", path.native(), errno);
  Draft draft(path);
  const std::vector<std::byte> description = describe(model);
  if (description.size() > kMostDescription) {
    return Status(Code::kOutOfRange, fmt::format("model {} is described by {} bytes; the limit of a store is {}",
                                                 model.name, description.size(), kMostDescription));
  }
  Head head{{}, static_cast<std::uint32_t>(description.size()), crc32(description)};
  std::ranges::copy(kMagic, head.magic.begin());
  const std::uint64_t begin = data_begin(description.size());
  // Room first: what does not fit is known before gigabytes are written.
  const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(begin + model.size));
  if (error != 0) return file_error(fmt::format("make room for {} bytes in", begin + model.size), path.native(), error);
  Status done = write_all(fd.get(), path, std::as_bytes(std::span(&head, 1)), 0, stop);
  if (done.ok()) done = write_all(fd.get(), path, description, sizeof head, stop);
  if (done.ok() && model.size != 0) done = write_all(fd.get(), path, model.memory.bytes(), begin, stop);
  if (done.ok() && ::fsync(fd.get()) != 0) done = file_error("write to the disk", path.native(), errno);
  if (!done.ok()) return done;
  return draft;
}

Status ModelDisk::name(Draft draft, const Model& model) {
  const fs::path path = path_of(model);
  if (std::rename(draft.path_.c_str(), path.c_str()) != 0) return file_error("create", path.native(), errno);
  draft.path_.clear();
  return sync_folder(path.parent_path());
}

Status ModelDisk::remove(const Model& model) {
  const fs::path path = path_of(model);
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) return file_error("remove", path.native(), errno);
  return sync_folder(path.parent_path());
}

Result<std::vector<ModelDisk::File>> ModelDisk::files() const {
  std::vector<File> all;
  std::error_code error;
  const std::error_code listed = for_each_entry(folder_, [&](const fs::directory_entry& folder) {
    std::error_code not_one;
    const std::optional<std::string> owner = owner_of(folder.path().filename().native());
    if (!owner || !folder.is_directory(not_one)) return;
    const std::error_code unread = for_each_entry(folder.path(), [&](const fs::directory_entry& entry) {
      const std::string model = entry.path().stem();
      if (entry.path().extension() != kModel || !check_model_name(model).ok() || !entry.is_regular_file(not_one))
        return;
      std::error_code unknown;
      File file{entry.path(), *owner, model, entry.file_size(unknown), {}};
      if (!unknown) file.written = entry.last_write_time(unknown);
      if (unknown) error = unknown;
      all.push_back(std::move(file));
    });
    if (unread) error = unread;
  });
  if (listed) error = listed;
  if (error) return file_error("read", folder_.native(), error.value());
  std::ranges::sort(all, {}, [](const File& file) { return std::tie(file.written, file.path); });
  return all;
}

Result<std::shared_ptr<Model>> ModelDisk::read(const File& file, Engine& engine, const std::function<bool()>& stop) {
  const UniqueFd fd(::open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return file_error("open", file.path.native(), errno);
  Head head{};
  if (Status got = read_all(fd.get(), file.path, std::as_writable_bytes(std::span(&head, 1)), 0); !got.ok()) return got;
  if (!std::ranges::equal(head.magic, kMagic)) return damaged(file.path, "it does not begin as a model does");
  if (head.bytes > kMostDescription || head.bytes > file.bytes) return damaged(file.path, "its description has no end");
  std::vector<std::byte> description(head.bytes);
  if (Status got = read_all(fd.get(), file.path, description, sizeof head); !got.ok()) return got;
  if (crc32(description) != head.crc) return damaged(file.path, "its description does not have its CRC-32");
  Result<Description> said = parse_description(description, file.path, file.bytes);
  if (!said) return said.error();
  if (said->begin->model != file.model) return damaged(file.path, fmt::format("it is model {}", said->begin->model));
  const std::uint64_t begin = data_begin(head.bytes);
  Result<std::shared_ptr<Model>> laid_out =
      ModelStore::lay_out(file.model, std::move(said->files), std::move(said->entries));
  if (!laid_out) return damaged(file.path, laid_out.error().message());
  Model& model = **laid_out;
  if (begin + model.size != file.bytes) {
    return damaged(file.path, fmt::format("it has {} bytes, not {}", file.bytes, begin + model.size));
  }
  model.owner = file.owner;
  if (Status there = model.allocate(engine); !there.ok()) return there;
  if (model.size != 0) {
    if (Status got = read_all(fd.get(), file.path, model.memory.bytes(), begin, stop); !got.ok()) return got;
  }
  if (Status right = check_tensors(model, file.path, stop); !right.ok()) return right;
  return *std::move(laid_out);
}

Result<std::string> ModelDisk::set_aside(const File& file) {
  const std::string aside = file.path.native() + ".damaged";
  if (std::rename(file.path.c_str(), aside.c_str()) != 0) return file_error("rename", file.path.native(), errno);
  if (Status synced = sync_folder(file.path.parent_path()); !synced.ok()) return synced;
  return aside;
}

}  // namespace fairlead::cli
