// Whose models are kept, and who makes room for whom.
#include "cli/models/model_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/keys_file.h"

namespace fairlead::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr std::uint64_t kKiB = 1024;

class ModelStoreTest : public testing::Test {
 protected:
  ModelStoreTest() {
    EngineConfig config;
    config.transport = "tcp";
    config.keys_file = keys_.path();
    Result<Engine> engine = Engine::create(config);
    EXPECT_TRUE(engine);
    engine_.emplace(std::move(*engine));
    store_.emplace(&*engine_, 1000 * kKiB);
  }

  std::shared_ptr<Model> model(const std::string& owner, const std::string& name, std::uint64_t bytes) {
    const FileTensor tensor{"w", "U8", {static_cast<std::int64_t>(bytes)}, 0, bytes};
    auto made = *ModelStore::lay_out(name, {ModelFile{"m.safetensors", {}, 1}}, {{tensor, {}}});
    made->owner = owner;
    EXPECT_TRUE(made->allocate(*engine_).ok());
    return made;
  }
  /// What went for it; nothing: it was refused.
  std::optional<std::vector<std::string>> keep(const std::string& owner, const std::string& name, std::uint64_t bytes) {
    Result<std::vector<ModelSummary>> dropped = store_->keep(model(owner, name, bytes));
    if (!dropped) {
      EXPECT_EQ(dropped.error().code(), Code::kResourceExhausted);
      EXPECT_THAT(dropped.error().message(), HasSubstr("equal share"));
      return std::nullopt;
    }
    std::vector<std::string> names;
    for (const ModelSummary& each : *dropped) names.push_back(each.name);
    return names;
  }
  std::vector<std::string> names_of(const std::string& owner) {
    std::vector<std::string> names;
    for (const ModelSummary& each : store_->list(owner)) names.push_back(each.name);
    return names;
  }

  const std::string key_ = std::string(64, 'a') + "\n";
  const test::KeysFile keys_{"alice " + key_ + "bob " + key_ + "carol " + key_};
  std::optional<Engine> engine_;
  std::optional<ModelStore> store_;
};

TEST_F(ModelStoreTest, ANameIsItsOwners) {
  EXPECT_THAT(*keep("alice", "m", 1000), IsEmpty());
  EXPECT_THAT(*keep("bob", "m", 2000), IsEmpty());
  EXPECT_THAT(*keep("", "m", 3000), IsEmpty());
  EXPECT_EQ(store_->find("m", "alice")->bytes, 1000U);
  EXPECT_EQ(store_->find("m", "bob")->bytes, 2000U);
  EXPECT_EQ(store_->find("m")->bytes, 3000U);
  EXPECT_EQ(store_->find("m", "carol"), nullptr);
  EXPECT_THAT(names_of("carol"), IsEmpty());
  EXPECT_EQ(ModelStore::read_prefix(*store_->find("m", "alice")), "of/alice/m/");
  EXPECT_EQ(ModelStore::read_prefix(*store_->find("m")), "model/m/");
  EXPECT_THAT(*keep("alice", "m", 1500), IsEmpty()) << "it takes its own place";
  EXPECT_EQ(store_->find("m", "bob")->bytes, 2000U);
  EXPECT_EQ(store_->count(), 3U);
}

TEST_F(ModelStoreTest, WithoutOwnersTheOldestMakesRoom) {
  for (const char* name : {"a", "b", "c"}) EXPECT_THAT(*keep("", name, 300 * kKiB), IsEmpty());
  EXPECT_THAT(*keep("", "d", 300 * kKiB), ElementsAre("a"));
  EXPECT_THAT(*keep("", "e", 600 * kKiB), ElementsAre("b", "c"));
  EXPECT_THAT(*keep("", "f", 900 * kKiB), ElementsAre("d", "e"));
}

TEST_F(ModelStoreTest, WhoHoldsNoMoreThanAnEqualShareLosesNothingToOthers) {
  EXPECT_THAT(*keep("alice", "a", 400 * kKiB), IsEmpty());
  EXPECT_THAT(*keep("bob", "b1", 300 * kKiB), IsEmpty());
  for (int i = 2; i < 10; ++i) {
    EXPECT_THAT(*keep("bob", "b" + std::to_string(i), 300 * kKiB), ElementsAre("b" + std::to_string(i - 1)));
  }
  EXPECT_EQ(keep("bob", "large", 700 * kKiB), std::nullopt) << "it would have to be at alice's cost";
  EXPECT_THAT(names_of("alice"), ElementsAre("a"));
  EXPECT_THAT(names_of("bob"), ElementsAre("b9")) << "what is refused costs nothing";
}

TEST_F(ModelStoreTest, WhoHoldsMostMakesRoom) {
  for (const char* name : {"a1", "a2", "a3"}) EXPECT_THAT(*keep("alice", name, 300 * kKiB), IsEmpty());
  EXPECT_THAT(*keep("bob", "b1", 200 * kKiB), ElementsAre("a1"));
  EXPECT_THAT(*keep("carol", "c1", 300 * kKiB), ElementsAre("a2"));
  EXPECT_THAT(*keep("bob", "b2", 250 * kKiB), ElementsAre("b1")) << "he would hold most";
}

TEST_F(ModelStoreTest, APrincipalPushesSoMuchAtOnce) {
  ModelStore store(&*engine_, 1000 * kKiB, 400 * kKiB);
  ModelStore::Reservation first, second, others;
  EXPECT_TRUE(store.reserve(first, 300 * kKiB, "m", "alice").ok());
  const Status refused = store.reserve(second, 200 * kKiB, "n", "alice");
  EXPECT_EQ(refused.code(), Code::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("'alice' is pushing 307.2 kB already, of 409.6 kB at once"));
  EXPECT_TRUE(store.reserve(others, 400 * kKiB, "n", "bob").ok());
  EXPECT_EQ(store.reserve(others, 1, "n", "bob").code(), Code::kResourceExhausted) << "it could never be";
  first = {};
  EXPECT_TRUE(store.reserve(second, 200 * kKiB, "n", "alice").ok());
}

}  // namespace
}  // namespace fairlead::cli
