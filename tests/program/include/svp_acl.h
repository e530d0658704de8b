/* What the example of docs/howto/mark-and-subscribe.md needs of the vendor's headers of the same names. */
#ifndef SVP_ACL_H
#define SVP_ACL_H
int svp_acl_init(const char *path);
int svp_acl_finalize(void);
int svp_acl_rt_set_device(int device);
#endif
