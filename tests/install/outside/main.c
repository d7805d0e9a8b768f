int move_one_buffer(const char* transport);

int main(void) { return move_one_buffer("tcp") + 2 * move_one_buffer("verbs:soft0"); }
